-- One job, if workspace $2 (null: any) may see it.
SELECT projection.id, projection.event_id, projection.event_type, projection.event_data, projection.stream_id,
       projection.stream_type, projection.status, projection.worker_id, projection.claimed_at, projection.workflow_id,
       projection.workflow_run_id, projection.completed_at, projection.failed_at, projection.error_message,
       projection.error_stack, projection.retry_count, projection.result, projection.created_at, projection.updated_at,
       job.workspace_id
FROM public.workflow_queue_projection projection JOIN forebay.workflow_queue_job job ON job.id = projection.id
WHERE projection.id = $1::uuid AND ($2::uuid IS NULL OR job.workspace_id = $2)
