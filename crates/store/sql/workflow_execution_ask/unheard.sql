-- Asks of a run that are over and counted as seen, while their nodes are still open: whoever saw them told nobody, or
-- is about to. The oldest first.
SELECT n.node, n.iteration, n.attempt, n.fence, n.input, a.status, a.output, a.error, a.answered_by, a.answered_at
FROM forebay.workflow_execution_node n
CROSS JOIN LATERAL (
    SELECT * FROM forebay.workflow_execution_ask a
     WHERE a.execution_id = n.execution_id AND a.node = n.node AND a.iteration = n.iteration AND a.attempt = n.attempt
       AND a.seen_at IS NOT NULL AND a.status IN ('TAKEN', 'EXPIRED') LIMIT 1) a
WHERE n.execution_id = $1::uuid
  AND n.status = 'RUNNING'
ORDER BY coalesce(a.answered_at, a.expires_at), n.node, n.iteration
LIMIT $2::bigint
