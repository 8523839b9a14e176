-- A binding as it is to be. One that a definition made is changed with it.
UPDATE forebay.event_binding b
SET workflow_definition_id = $3::uuid, filter = $4::text, input = $5::jsonb, workflow_id = $6::text,
    lease_s = coalesce($7::int, 900), full_until = NULL, updated_at = clock_timestamp()
WHERE b.id = $1::uuid AND ($2::uuid IS NULL OR b.workspace_id = $2) AND NOT b.by_definition
RETURNING b.workspace_id
