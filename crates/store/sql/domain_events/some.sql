-- Some events of a workspace, as expressions see them.
SELECT d.id, d.event_type, d.event_data, d.event_metadata, d.stream_id, d.stream_type, d.stream_version, d.created_at
FROM public.domain_events d
WHERE d.id = ANY ($1::uuid[]) AND d.workspace_id = $2::uuid
ORDER BY d.id
LIMIT $3::bigint
