-- The item of an iteration, from the list that its loop resolved.
SELECT node.input -> 'items' -> ($3::int - 1) AS item
FROM forebay.workflow_execution_node node
WHERE node.execution_id = $1::uuid
  AND node.node = $2::text
  AND node.iteration = 0
