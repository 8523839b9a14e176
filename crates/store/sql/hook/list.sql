-- Hooks of a workspace (null: of all), or one of them, or that of a definition, by id.
SELECT h.id, h.workspace_id, h.workflow_definition_id, d.name AS definition_name, h.rule, h.token_prefix, h.previous_until, h.rotated_at,
       h.created_at, h.updated_at
FROM forebay.hook h
JOIN forebay.workflow_definition d ON d.id = h.workflow_definition_id
WHERE h.id > $1::uuid
  AND ($2::uuid IS NULL OR h.workspace_id = $2)
  AND ($3::uuid IS NULL OR h.id = $3)
  AND ($4::uuid IS NULL OR h.workflow_definition_id = $4)
ORDER BY h.id
LIMIT $5::bigint
