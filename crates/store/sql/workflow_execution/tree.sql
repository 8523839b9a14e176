-- A tree: its root, then its descendants in the order in which they were made. A child is never older than its parent.
(SELECT execution.id, execution.parent, execution.parent_node, execution.parent_iteration, execution.parent_attempt,
        execution.status, execution.error, execution.workflow_definition_id, execution.created_at, execution.started_at,
        execution.completed_at, execution.duration_ms, execution.depth, definition.name AS definition_name
   FROM forebay.workflow_execution execution
   LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
  WHERE execution.id = $1::uuid)
UNION ALL
(SELECT execution.id, execution.parent, execution.parent_node, execution.parent_iteration, execution.parent_attempt,
        execution.status, execution.error, execution.workflow_definition_id, execution.created_at, execution.started_at,
        execution.completed_at, execution.duration_ms, execution.depth, definition.name AS definition_name
   FROM forebay.workflow_execution execution
   LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
  WHERE execution.root = $1::uuid AND execution.depth > 0
  ORDER BY execution.id
  LIMIT $2::bigint)
