-- What an execution's nodes have to say: those that log ($2) with what they said, and whatever failed, in the order in which
-- they settled.
SELECT node, iteration, attempt, CASE WHEN node = ANY ($2::text[]) THEN output END AS said, earlier,
       -- One that waits for its next attempt shows an error that is among the earlier ones.
       CASE WHEN completed_at IS NOT NULL THEN error END AS error, coalesce(completed_at, started_at) AS at
FROM workflow_execution_node
WHERE execution_id = $1::uuid
  AND (node = ANY ($2::text[]) AND output IS NOT NULL OR error IS NOT NULL OR earlier IS NOT NULL)
ORDER BY seq NULLS LAST, node, iteration
LIMIT 10000
