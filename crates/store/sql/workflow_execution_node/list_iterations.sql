-- The iterations of a loop after $3 as people read them, in order. $5: with what they took and made.
SELECT node, iteration, status, attempt, label, CASE WHEN $5::boolean THEN input END AS input,
       CASE WHEN $5::boolean THEN output END AS output, error, earlier, next_at, started_at, completed_at, duration_ms,
       kept_from
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND node = $2::text
  AND iteration > $3::int
ORDER BY iteration
LIMIT $4::bigint
