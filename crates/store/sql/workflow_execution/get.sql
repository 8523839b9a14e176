-- One execution, in its workspace ($2 null: any).
SELECT e.id, e.workspace_id, e.workflow_definition_id, e.version_id, e.status, e.engine, e.engine_run_id, e.trigger, e.input,
       e.output, e.error || coalesce(f.attempts, '{}') AS error, e.priority, e.concurrency_key, e.created_at, e.started_at, e.completed_at, e.duration_ms,
       e.deadline_at, e.cancel_requested_at, e.wake_at, e.last_seq, e.rerun_of, e.parent, coalesce(e.root, e.id) AS root, e.parent_node, e.parent_iteration, e.depth, v.number AS version_number, d.name AS definition_name
FROM forebay.workflow_execution e
LEFT JOIN forebay.workflow_definition_version v ON v.id = e.version_id
LEFT JOIN forebay.workflow_definition d ON d.id = e.workflow_definition_id
-- Every attempt at the node that failed it, with its time; the last ten.
LEFT JOIN LATERAL (
    SELECT jsonb_build_object('attempts', coalesce(n.earlier, '[]') || jsonb_build_array(
               jsonb_build_object('attempt', n.attempt, 'at', n.completed_at, 'error', n.error - 'node'))) AS attempts
    FROM forebay.workflow_execution_node n
    WHERE n.execution_id = e.id AND n.node = e.error ->> 'node' AND n.iteration = 0 AND n.error IS NOT NULL
      AND n.completed_at IS NOT NULL) f ON true
WHERE e.id = $1::uuid
  AND e.workspace_id = coalesce($2::uuid, e.workspace_id)
