-- Lets go of an error of handling: the event stays and makes no job.
UPDATE domain_events e
SET processing_error = NULL, processing_failed_at = NULL
WHERE e.id = $1::uuid AND ($2::uuid IS NULL OR e.workspace_id = $2) AND e.processing_error IS NOT NULL
RETURNING e.workspace_id
