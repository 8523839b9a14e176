-- The events of a workspace with these ids, with the columns that expressions can read.
SELECT event.id, event.event_type, event.event_data, event.event_metadata, event.stream_id, event.stream_type,
       event.stream_version, event.created_at
FROM public.domain_events event
WHERE event.id = ANY ($1::uuid[]) AND event.workspace_id = $2::uuid
ORDER BY event.id
LIMIT $3::bigint
