-- Events of workspace $7 with type $2 before sequence $1, newest first. Optional filters: stream $3, stream type $4. If
-- $5, only events whose fold failed. The type is always compared, so that no plan reads events of other types.
SELECT event.id, event.sequence, event.workspace_id, event.stream_id, event.stream_type, event.stream_version,
       event.event_type, event.event_data, event.event_metadata, event.created_at, event.processing_error,
       event.processing_failed_at, event.bound
FROM public.domain_events event
WHERE event.workspace_id = $7::uuid
  AND event.event_type = $2::text
  AND event.sequence < $1::bigint
  AND ($3::uuid IS NULL OR event.stream_id = $3)
  AND ($4::text IS NULL OR event.stream_type = $4)
  AND (NOT $5::boolean OR event.processing_error IS NOT NULL)
ORDER BY event.sequence DESC
LIMIT $6::bigint
