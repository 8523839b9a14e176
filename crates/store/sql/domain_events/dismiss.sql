-- Lets go of an error of handling: the event stays and makes no job.
UPDATE public.domain_events e
SET processing_error = NULL, processing_failed_at = NULL
WHERE e.sequence = $1::bigint AND e.processing_error IS NOT NULL
RETURNING e.workspace_id
