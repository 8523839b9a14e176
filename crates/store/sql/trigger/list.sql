-- Triggers by id, after $1. Optional filters: workspace $2, trigger $3, definition $4.
SELECT trigger.id, trigger.workspace_id, trigger.workflow_definition_id, definition.name AS definition_name,
       trigger.rule, trigger.token_prefix, trigger.previous_expires_at, trigger.rotated_at, trigger.created_at,
       trigger.updated_at
FROM forebay.trigger
JOIN forebay.workflow_definition definition ON definition.id = trigger.workflow_definition_id
WHERE trigger.id > $1::uuid
  AND ($2::uuid IS NULL OR trigger.workspace_id = $2)
  AND ($3::uuid IS NULL OR trigger.id = $3)
  AND ($4::uuid IS NULL OR trigger.workflow_definition_id = $4)
ORDER BY trigger.id
LIMIT $5::bigint
