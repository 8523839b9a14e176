-- Failed -> pending, on request, unless the job has failed as often as the kernel allows.
UPDATE public.workflow_queue_projection projection
SET status = 'pending'
FROM forebay.workflow_queue_job job
WHERE projection.id = $1::uuid AND job.id = projection.id AND ($2::uuid IS NULL OR job.workspace_id = $2)
  AND projection.status = 'failed' AND projection.retry_count < forebay.max_job_failures()
RETURNING job.workspace_id
