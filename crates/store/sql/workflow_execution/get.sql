-- One execution, in its workspace ($2 null: any).
SELECT execution.id, execution.workspace_id, execution.workflow_definition_id, execution.version_id, execution.status,
       execution.engine, execution.engine_run_id, execution.trigger, execution.input, execution.output,
       execution.error || coalesce(failed.attempts, '{}') AS error, execution.priority, execution.concurrency_key,
       execution.created_at, execution.started_at, execution.completed_at, execution.duration_ms, execution.deadline_at,
       execution.cancel_requested_at, execution.last_seq, execution.rerun_of, execution.parent,
       coalesce(execution.root, execution.id) AS root, execution.parent_node, execution.parent_iteration,
       execution.depth, version.number AS version_number, definition.name AS definition_name
FROM forebay.workflow_execution execution
LEFT JOIN forebay.workflow_definition_version version ON version.id = execution.version_id
LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
-- Every attempt at the node that failed it, with its time; the last ten.
LEFT JOIN LATERAL (
    SELECT jsonb_build_object('attempts', coalesce(node.earlier, '[]') || jsonb_build_array(
               jsonb_build_object('attempt', node.attempt, 'at', node.completed_at,
                                  'error', node.error - 'node'))) AS attempts
    FROM forebay.workflow_execution_node node
    WHERE node.execution_id = execution.id AND node.node = execution.error ->> 'node' AND node.iteration = 0
      AND node.error IS NOT NULL AND node.completed_at IS NOT NULL) failed ON true
WHERE execution.id = $1::uuid
  AND execution.workspace_id = coalesce($2::uuid, execution.workspace_id)
