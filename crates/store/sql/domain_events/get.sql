-- The events with id $1 that workspace $2 (null: any) may see. A second row means that two workspaces use the same id.
SELECT event.id, event.sequence, event.workspace_id, event.stream_id, event.stream_type, event.stream_version,
       event.event_type, event.event_data, event.event_metadata, event.created_at, event.processing_error,
       event.processing_failed_at, event.bound
FROM public.domain_events event
WHERE event.id = $1::uuid AND ($2::uuid IS NULL OR event.workspace_id = $2)
ORDER BY event.sequence
LIMIT 2
