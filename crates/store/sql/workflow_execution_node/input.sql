-- The input of a node.
SELECT input
FROM forebay.workflow_execution_node
WHERE execution_id = $1::uuid
  AND node = $2::text
  AND iteration = $3::int
