-- A page of the states of a loop's iterations after $3, in order, without outputs.
SELECT iteration, status, attempt, (extract(epoch FROM next_at - clock_timestamp()) * 1000)::bigint AS next_in_ms
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND node = $2::text
  AND iteration > $3::int
ORDER BY iteration
LIMIT $4::bigint
