-- Events of all workspaces, the newest first, before a sequence: of a type, of a stream, or those whose handling
-- failed.
SELECT e.id, e.sequence, e.workspace_id, e.stream_id, e.stream_type, e.stream_version, e.event_type, e.event_data, e.event_metadata,
       e.created_at, e.processing_error, e.processing_failed_at, e.bound
FROM public.domain_events e
WHERE e.sequence < $1::bigint
  AND ($2::text IS NULL OR e.event_type = $2)
  AND ($3::uuid IS NULL OR e.stream_id = $3)
  AND ($4::text IS NULL OR e.stream_type = $4)
  AND (NOT $5::boolean OR e.processing_error IS NOT NULL)
ORDER BY e.sequence DESC
LIMIT $6::bigint
