-- The waits of an execution and its descendants, in workspace $2 (null: any), by execution, node and iteration, after a
-- position. An execution is never older than its parent, so the waits of execution $1 itself come first.
WITH RECURSIVE below AS (
    SELECT execution.id FROM forebay.workflow_execution execution WHERE execution.id = $1::uuid
    UNION ALL
    SELECT child.id FROM below JOIN forebay.workflow_execution child ON child.parent = below.id
)
SELECT wait.execution_id, wait.node, wait.iteration, wait.attempt, wait.status, wait.event_type, wait.match, wait.input,
       wait.opened_at, wait.expires_at, wait.answered_by, wait.answered_at
FROM below
JOIN forebay.workflow_execution_wait wait ON wait.execution_id = below.id
WHERE ($2::uuid IS NULL OR wait.workspace_id = $2)
  AND wait.kind = 'WAIT'
  AND ($3::uuid IS NULL OR (wait.execution_id, wait.node, wait.iteration) > ($3, $4::text, $5::int))
ORDER BY wait.execution_id, wait.node, wait.iteration
LIMIT $6::bigint
