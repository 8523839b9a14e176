-- Bindings by id, after $1: those of workspace $2 (null: all, including the built-in ones), or only binding $3.
SELECT binding.id, binding.workspace_id, binding.event_type, binding.workflow_definition_id,
       definition.name AS definition_name, binding.built_in, binding.by_definition, binding.filter, binding.input,
       binding.workflow_id, binding.lease_s, binding.created_at, binding.updated_at
FROM (
    SELECT own.id, own.workspace_id, own.event_type, own.workflow_definition_id, false AS built_in, own.by_definition,
           own.filter, own.input, own.workflow_id, own.lease_s, own.created_at, own.updated_at
    FROM forebay.event_binding own
    UNION ALL
    SELECT built.id, NULL, built.event_type, NULL, true, false, NULL, NULL, NULL, built.lease_s, 'epoch', 'epoch'
    FROM forebay.built_in_bindings() built) binding
LEFT JOIN forebay.workflow_definition definition ON definition.id = binding.workflow_definition_id
WHERE binding.id > $1::uuid
  AND ($2::uuid IS NULL OR binding.workspace_id = $2)
  AND ($3::uuid IS NULL OR binding.id = $3)
ORDER BY binding.id
LIMIT $4::bigint
