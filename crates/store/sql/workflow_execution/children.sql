-- The children of an execution, in the order in which they were made, after a position.
SELECT execution.id, execution.parent, execution.parent_node, execution.parent_iteration, execution.parent_attempt,
       execution.status, execution.error, execution.workflow_definition_id, execution.created_at, execution.started_at,
       execution.completed_at, execution.duration_ms, execution.depth, definition.name AS definition_name
FROM forebay.workflow_execution execution
LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
WHERE execution.parent = $1::uuid
  AND execution.id > $2::uuid
ORDER BY execution.id
LIMIT $3::bigint
