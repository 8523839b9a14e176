-- Events of one workspace ($7) and one type, the newest first, before a sequence: of a stream, or those whose handling
-- failed. The type is always compared, so that no plan passes events of other types.
SELECT e.id, e.sequence, e.workspace_id, e.stream_id, e.stream_type, e.stream_version, e.event_type, e.event_data, e.event_metadata,
       e.created_at, e.processing_error, e.processing_failed_at, e.bound
FROM public.domain_events e
WHERE e.workspace_id = $7::uuid
  AND e.event_type = $2::text
  AND e.sequence < $1::bigint
  AND ($3::uuid IS NULL OR e.stream_id = $3)
  AND ($4::text IS NULL OR e.stream_type = $4)
  AND (NOT $5::boolean OR e.processing_error IS NOT NULL)
ORDER BY e.sequence DESC
LIMIT $6::bigint
