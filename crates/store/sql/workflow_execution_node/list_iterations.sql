-- The iterations of a loop after $3 for display, in order. If $5, with input and output.
SELECT node, iteration, status, attempt, label, CASE WHEN $5::boolean THEN input END AS input,
       CASE WHEN $5::boolean THEN output END AS output, error, earlier, next_at, started_at, completed_at, duration_ms,
       kept_from
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND node = $2::text
  AND iteration > $3::int
ORDER BY iteration
LIMIT $4::bigint
