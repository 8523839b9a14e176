-- The hook of a token, of a definition and a workspace that live. A token before the last opens until its time is up.
SELECT hook.id, hook.workspace_id, hook.workflow_definition_id, hook.rule
FROM forebay.hook
JOIN forebay.workflow_definition definition ON definition.id = hook.workflow_definition_id
JOIN forebay.workspace ON workspace.id = hook.workspace_id
WHERE (hook.token_hash = $1::bytea OR (hook.previous_hash = $1 AND hook.previous_until > clock_timestamp()))
  AND definition.deleted_at IS NULL
  AND definition.status <> 'DRAFT'
  AND workspace.deleted_at IS NULL
