-- Lets go of an error of handling: the event stays and makes no job.
UPDATE public.domain_events event
SET processing_error = NULL, processing_failed_at = NULL
WHERE event.sequence = $1::bigint AND event.processing_error IS NOT NULL
RETURNING event.workspace_id
