-- A tree: its root and what is below it, in the order in which they were made. A child is never older than its parent.
(SELECT c.id, c.parent, c.parent_node, c.parent_iteration, c.parent_attempt, c.status, c.error, c.workflow_definition_id,
        c.created_at, c.started_at, c.completed_at, c.duration_ms, c.depth, d.name AS definition_name
   FROM forebay.workflow_execution c
   LEFT JOIN forebay.workflow_definition d ON d.id = c.workflow_definition_id
  WHERE c.id = $1::uuid)
UNION ALL
(SELECT c.id, c.parent, c.parent_node, c.parent_iteration, c.parent_attempt, c.status, c.error, c.workflow_definition_id,
        c.created_at, c.started_at, c.completed_at, c.duration_ms, c.depth, d.name AS definition_name
   FROM forebay.workflow_execution c
   LEFT JOIN forebay.workflow_definition d ON d.id = c.workflow_definition_id
  WHERE c.root = $1::uuid AND c.depth > 0
  ORDER BY c.id
  LIMIT $2::bigint)
