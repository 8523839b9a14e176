-- A page of a loop's iterations after $3, in order, with their outputs.
SELECT iteration, status, output, error
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND node = $2::text
  AND iteration > $3::int
ORDER BY iteration
LIMIT $4::bigint
