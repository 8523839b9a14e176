-- One execution, in its workspace ($2 null: any).
SELECT e.id, e.workspace_id, e.workflow_definition_id, e.version_id, e.status, e.engine, e.engine_run_id, e.trigger, e.input,
       e.output, e.error, e.priority, e.concurrency_key, e.created_at, e.started_at, e.completed_at, e.duration_ms,
       e.deadline_at, e.cancel_requested_at, e.wake_at, e.last_seq, e.rerun_of, v.number AS version_number, d.name AS definition_name
FROM workflow_execution e
LEFT JOIN workflow_definition_version v ON v.id = e.version_id
LEFT JOIN workflow_definition d ON d.id = e.workflow_definition_id
WHERE e.id = $1::uuid
  AND e.workspace_id = coalesce($2::uuid, e.workspace_id)
