-- The stored nodes of some runs: settled nodes in the order in which they settled, then open nodes. The iterations of a
-- loop are read only when the loop is performed again.
SELECT execution_id, node, iteration, status, attempt, label, output, error, seq,
       (extract(epoch FROM next_at - clock_timestamp()) * 1000)::bigint AS next_in_ms
FROM forebay.workflow_execution_node
WHERE execution_id = ANY ($1::uuid[])
  AND iteration = 0
ORDER BY execution_id, seq NULLS LAST, node, iteration
