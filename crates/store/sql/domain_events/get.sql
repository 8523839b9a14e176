-- The events of an id that this workspace (null: any) may see: a second one means that workspaces share the id.
SELECT e.id, e.sequence, e.workspace_id, e.stream_id, e.stream_type, e.stream_version, e.event_type, e.event_data, e.event_metadata,
       e.created_at, e.processing_error, e.processing_failed_at, e.bound
FROM public.domain_events e
WHERE e.id = $1::uuid AND ($2::uuid IS NULL OR e.workspace_id = $2)
ORDER BY e.sequence
LIMIT 2
