-- Bindings of a workspace and of the platform (null: all), or one of them, by id.
SELECT b.id, b.workspace_id, b.event_type, b.workflow_definition_id, d.name AS definition_name, b.by_definition, b.filter, b.input,
       b.workflow_id, b.lease_s, b.created_at, b.updated_at
FROM event_binding b
LEFT JOIN workflow_definition d ON d.id = b.workflow_definition_id
WHERE b.id > $1::uuid
  AND ($2::uuid IS NULL OR b.workspace_id = $2)
  AND ($3::uuid IS NULL OR b.id = $3)
ORDER BY b.id
LIMIT $4::bigint
