-- One job, if this workspace (null: any) may see it.
SELECT p.id, p.event_id, p.event_type, p.event_data, p.stream_id, p.stream_type, p.status, p.worker_id,
       p.claimed_at, p.workflow_id, p.workflow_run_id, p.completed_at, p.failed_at, p.error_message, p.error_stack, p.retry_count,
       p.result, p.created_at, p.updated_at, j.workspace_id
FROM public.workflow_queue_projection p JOIN forebay.workflow_queue_job j ON j.id = p.id
WHERE p.id = $1::uuid AND ($2::uuid IS NULL OR j.workspace_id = $2)
