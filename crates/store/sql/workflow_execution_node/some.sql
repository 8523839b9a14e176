-- The nodes of a run with these names, with outputs.
SELECT node, status, attempt, label, output, error,
       (extract(epoch FROM next_at - clock_timestamp()) * 1000)::bigint AS next_in_ms
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND node = ANY ($2::text[])
  AND iteration = 0
