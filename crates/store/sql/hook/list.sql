-- Hooks of a workspace (null: of all), or one of them, or that of a definition, by id.
SELECT hook.id, hook.workspace_id, hook.workflow_definition_id, definition.name AS definition_name, hook.rule,
       hook.token_prefix, hook.previous_until, hook.rotated_at, hook.created_at, hook.updated_at
FROM forebay.hook
JOIN forebay.workflow_definition definition ON definition.id = hook.workflow_definition_id
WHERE hook.id > $1::uuid
  AND ($2::uuid IS NULL OR hook.workspace_id = $2)
  AND ($3::uuid IS NULL OR hook.id = $3)
  AND ($4::uuid IS NULL OR hook.workflow_definition_id = $4)
ORDER BY hook.id
LIMIT $5::bigint
