-- Jobs of all workspaces before the position ($4, $5), newest first. Optional filters: status $1, event type $2, stream
-- $3.
SELECT projection.id, projection.event_id, projection.event_type, projection.event_data, projection.stream_id,
       projection.stream_type, projection.status, projection.worker_id, projection.claimed_at, projection.workflow_id,
       projection.workflow_run_id, projection.completed_at, projection.failed_at, projection.error_message,
       projection.error_stack, projection.retry_count, projection.result, projection.created_at, projection.updated_at,
       job.workspace_id
FROM public.workflow_queue_projection projection JOIN forebay.workflow_queue_job job ON job.id = projection.id
WHERE ($1::text IS NULL OR projection.status = $1)
  AND ($2::text IS NULL OR projection.event_type = $2)
  AND ($3::uuid IS NULL OR projection.stream_id = $3)
  AND (projection.created_at, projection.id) < (coalesce($4::timestamptz, 'infinity'), $5::uuid)
ORDER BY projection.created_at DESC, projection.id DESC
LIMIT $6::bigint
