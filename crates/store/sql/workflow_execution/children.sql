-- The children of an execution, in the order in which they were made, after a place.
SELECT c.id, c.parent, c.parent_node, c.parent_iteration, c.parent_attempt, c.status, c.error, c.workflow_definition_id, c.created_at,
       c.started_at, c.completed_at, c.duration_ms, c.depth, d.name AS definition_name
FROM forebay.workflow_execution c
LEFT JOIN forebay.workflow_definition d ON d.id = c.workflow_definition_id
WHERE c.parent = $1::uuid
  AND c.id > $2::uuid
ORDER BY c.id
LIMIT $3::bigint
