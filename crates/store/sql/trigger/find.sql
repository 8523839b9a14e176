-- The trigger that a token belongs to, if its definition is published and neither the definition nor the workspace is
-- deleted. The previous token works until `previous_expires_at`.
SELECT trigger.id, trigger.workspace_id, trigger.workflow_definition_id, trigger.rule
FROM forebay.trigger
JOIN forebay.workflow_definition definition ON definition.id = trigger.workflow_definition_id
JOIN forebay.workspace ON workspace.id = trigger.workspace_id
WHERE (trigger.token_hash = $1::bytea
       OR (trigger.previous_hash = $1 AND trigger.previous_expires_at > clock_timestamp()))
  AND definition.deleted_at IS NULL
  AND definition.status <> 'DRAFT'
  AND workspace.deleted_at IS NULL
