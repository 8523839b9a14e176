-- The wait that a token belongs to, and the status of that wait. An invalid or expired token is not found; a used token
-- is found.
SELECT token.execution_id, token.node, token.iteration, token.workspace_id, token.expires_at,
       token.used_at IS NOT NULL AS used, execution.version_id, definition.name AS workflow, wait.status, wait.input,
       wait.expires_at AS wait_expires_at
FROM forebay.workflow_execution_token token
JOIN forebay.workflow_execution execution ON execution.id = token.execution_id
LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
LEFT JOIN forebay.workflow_execution_wait wait ON wait.execution_id = token.execution_id AND wait.node = token.node
    AND wait.iteration = token.iteration
WHERE token.hash = $1::bytea
  AND (token.used_at IS NOT NULL OR (token.expires_at > clock_timestamp() AND execution.completed_at IS NULL))
