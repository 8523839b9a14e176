-- What a token is for, and how that stands. Whatever is wrong with it is not found, but that it was used.
SELECT t.execution_id, t.node, t.iteration, t.workspace_id, t.expires_at, t.used_at IS NOT NULL AS used, e.version_id, d.name AS workflow,
       a.status, a.input, a.expires_at AS wait_expires_at
FROM forebay.workflow_execution_token t
JOIN forebay.workflow_execution e ON e.id = t.execution_id
LEFT JOIN forebay.workflow_definition d ON d.id = e.workflow_definition_id
LEFT JOIN forebay.workflow_execution_ask a ON a.execution_id = t.execution_id AND a.node = t.node AND a.iteration = t.iteration
WHERE t.hash = $1::bytea
  AND (t.used_at IS NOT NULL OR (t.expires_at > clock_timestamp() AND e.completed_at IS NULL))
