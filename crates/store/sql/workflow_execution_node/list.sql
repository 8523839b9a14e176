-- The nodes of an execution for display, after the first $4: settled nodes in the order in which they settled, then
-- open nodes by start. A settled node keeps its position. If $2, with input and output. $3: only this node (null: all).
-- Iterations are listed separately.
SELECT node, iteration, status, attempt, label, CASE WHEN $2::boolean THEN input END AS input,
       CASE WHEN $2::boolean THEN output END AS output, error, earlier, next_at, started_at, completed_at, duration_ms,
       kept_from
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND iteration = 0
  AND ($3::text IS NULL OR node = $3)
ORDER BY seq NULLS LAST, started_at NULLS LAST, node, iteration
LIMIT 10000 OFFSET $4::bigint
