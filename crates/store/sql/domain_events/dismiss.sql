-- Clears an event's error. The event stays, and no job is created for it.
UPDATE public.domain_events event
SET processing_error = NULL, processing_failed_at = NULL
WHERE event.sequence = $1::bigint AND event.processing_error IS NOT NULL
RETURNING event.workspace_id
