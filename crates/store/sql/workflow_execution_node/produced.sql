-- What the iterations of a loop produced, a page of them in order.
SELECT iteration, status, output, error
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND node = $2::text
  AND iteration > $3::int
ORDER BY iteration
LIMIT $4::bigint
