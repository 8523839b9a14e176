-- An execution's nodes as people read them: in the order in which they settled, then the open ones by their start. $2:
-- with what they took and made. Only node $3, if one is named; behind the first $4. What has settled keeps its place.
-- The iterations of a loop are lists of their own.
SELECT node, iteration, status, attempt, label, CASE WHEN $2::boolean THEN input END AS input,
       CASE WHEN $2::boolean THEN output END AS output, error, earlier, next_at, started_at, completed_at, duration_ms,
       kept_from
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND iteration = 0
  AND ($3::text IS NULL OR node = $3)
ORDER BY seq NULLS LAST, started_at NULLS LAST, node, iteration
LIMIT 10000 OFFSET $4::bigint
