-- The item of an iteration, from the list that its loop resolved.
SELECT n.input -> 'items' -> ($3::int - 1) AS item
FROM forebay.workflow_execution_node n
WHERE n.execution_id = $1::uuid
  AND n.node = $2::text
  AND n.iteration = 0
