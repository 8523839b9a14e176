-- The states of a run's nodes, without outputs: settled nodes in the order in which they settled, then open nodes.
SELECT node, status, attempt, label, NULL::jsonb AS output, NULL::jsonb AS error,
       (extract(epoch FROM next_at - clock_timestamp()) * 1000)::bigint AS next_in_ms
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND iteration = 0
ORDER BY seq NULLS LAST, node, iteration
LIMIT 10000
