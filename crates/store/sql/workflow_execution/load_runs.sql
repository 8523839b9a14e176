-- What this process needs to continue runs that it owns.
SELECT id, workspace_id, workflow_definition_id, version_id, owner_epoch, input, trigger, created_at, trace_context,
       (extract(epoch FROM deadline_at - clock_timestamp()) * 1000)::bigint AS deadline_in_ms,
       cancel_requested_at IS NOT NULL AS canceling, terminate_requested_at IS NOT NULL AS terminating
FROM forebay.workflow_execution
WHERE id = ANY ($1::uuid[])
  AND owner = $2::uuid
  AND status = 'RUNNING'
