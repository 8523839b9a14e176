-- Failed -> pending, by hand. The trigger counts what may be tried again.
UPDATE public.workflow_queue_projection p
SET status = 'pending'
FROM forebay.workflow_queue_job j
WHERE p.id = $1::uuid AND j.id = p.id AND ($2::uuid IS NULL OR j.workspace_id = $2) AND p.status = 'failed' AND p.retry_count < 3
RETURNING j.workspace_id
