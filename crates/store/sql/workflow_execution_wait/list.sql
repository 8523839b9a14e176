-- The waits of an execution by node and iteration, after a position, in workspace $2 (null: any).
SELECT wait.execution_id, wait.node, wait.iteration, wait.kind, wait.attempt, wait.status, wait.event_type, wait.match,
       wait.queue, wait.input, wait.opened_at, wait.expires_at, wait.outcome, wait.answered_by, wait.answered_at
FROM forebay.workflow_execution_wait wait
WHERE wait.execution_id = $1::uuid
  AND ($2::uuid IS NULL OR wait.workspace_id = $2)
  AND wait.kind = 'WAIT'
  AND ($3::text IS NULL OR (wait.node, wait.iteration) > ($3, $4::int))
ORDER BY wait.node, wait.iteration
LIMIT $5::bigint
