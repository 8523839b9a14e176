-- Bindings of a workspace (null: all, the built-in ones too), or one of them, by id.
SELECT b.id, b.workspace_id, b.event_type, b.workflow_definition_id, d.name AS definition_name, b.built_in, b.by_definition, b.filter,
       b.input, b.workflow_id, b.lease_s, b.created_at, b.updated_at
FROM (
    SELECT own.id, own.workspace_id, own.event_type, own.workflow_definition_id, false AS built_in, own.by_definition, own.filter,
           own.input, own.workflow_id, own.lease_s, own.created_at, own.updated_at
    FROM forebay.event_binding own
    UNION ALL
    SELECT built.id, NULL, built.event_type, NULL, true, false, NULL, NULL, NULL, built.lease_s, 'epoch', 'epoch'
    FROM forebay.built_in_bindings() built) b
LEFT JOIN forebay.workflow_definition d ON d.id = b.workflow_definition_id
WHERE b.id > $1::uuid
  AND ($2::uuid IS NULL OR b.workspace_id = $2)
  AND ($3::uuid IS NULL OR b.id = $3)
ORDER BY b.id
LIMIT $4::bigint
