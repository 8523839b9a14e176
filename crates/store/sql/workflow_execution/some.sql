-- The executions with these ids, of any workspace. Unlike get.sql, this does not add the failed attempts to `error`, so
-- it is meant for executions that have not failed.
SELECT execution.id, execution.workspace_id, execution.workflow_definition_id, execution.version_id, execution.status,
       execution.engine, execution.engine_run_id, execution.trigger, execution.input, execution.output, execution.error,
       execution.priority, execution.concurrency_key, execution.created_at, execution.started_at,
       execution.completed_at, execution.duration_ms, execution.deadline_at, execution.cancel_requested_at,
       execution.last_seq, execution.rerun_of, execution.parent,
       coalesce(execution.root, execution.id) AS root, execution.parent_node, execution.parent_iteration,
       execution.depth, version.number AS version_number, definition.name AS definition_name
FROM forebay.workflow_execution execution
LEFT JOIN forebay.workflow_definition_version version ON version.id = execution.version_id
LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
WHERE execution.id = ANY ($1::uuid[])
