-- Waits of a run that are answered or expired, and marked as read, while their nodes are still open. The worker that
-- read them has not reported their result, or has died. Oldest first.
SELECT node.node, node.iteration, node.attempt, node.fence, node.input, wait.status, wait.output, wait.error,
       wait.answered_by, wait.answered_at
FROM forebay.workflow_execution_node node
CROSS JOIN LATERAL (
    SELECT * FROM forebay.workflow_execution_wait wait
     WHERE wait.execution_id = node.execution_id AND wait.node = node.node AND wait.iteration = node.iteration
       AND wait.attempt = node.attempt AND wait.read_at IS NOT NULL AND wait.status IN ('RECEIVED', 'EXPIRED')
     LIMIT 1) wait
WHERE node.execution_id = $1::uuid
  AND node.status = 'RUNNING'
ORDER BY coalesce(wait.answered_at, wait.expires_at), node.node, node.iteration
LIMIT $2::bigint
