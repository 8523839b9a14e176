-- Jobs of all workspaces, the newest first, before a place: of a status, of a type, of a stream.
SELECT p.id, p.event_id, p.event_type, p.event_data, p.stream_id, p.stream_type, p.status, p.worker_id,
       p.claimed_at, p.workflow_id, p.workflow_run_id, p.completed_at, p.failed_at, p.error_message, p.error_stack, p.retry_count,
       p.result, p.created_at, p.updated_at, j.workspace_id
FROM public.workflow_queue_projection p JOIN forebay.workflow_queue_job j ON j.id = p.id
WHERE ($1::text IS NULL OR p.status = $1)
  AND ($2::text IS NULL OR p.event_type = $2)
  AND ($3::uuid IS NULL OR p.stream_id = $3)
  AND (p.created_at, p.id) < (coalesce($4::timestamptz, 'infinity'), $5::uuid)
ORDER BY p.created_at DESC, p.id DESC
LIMIT $6::bigint
