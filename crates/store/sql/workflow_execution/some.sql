-- Some executions that have not failed: their errors are not looked into.
SELECT e.id, e.workspace_id, e.workflow_definition_id, e.version_id, e.status, e.engine, e.engine_run_id, e.trigger, e.input,
       e.output, e.error, e.priority, e.concurrency_key, e.created_at, e.started_at, e.completed_at, e.duration_ms,
       e.deadline_at, e.cancel_requested_at, e.wake_at, e.last_seq, e.rerun_of, e.parent, coalesce(e.root, e.id) AS root, e.parent_node, e.parent_iteration, e.depth, v.number AS version_number, d.name AS definition_name
FROM forebay.workflow_execution e
LEFT JOIN forebay.workflow_definition_version v ON v.id = e.version_id
LEFT JOIN forebay.workflow_definition d ON d.id = e.workflow_definition_id
WHERE e.id = ANY ($1::uuid[])
