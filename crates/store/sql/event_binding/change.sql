-- A binding as it is to be. One that a definition made is changed with it.
UPDATE forebay.event_binding binding
SET workflow_definition_id = $3::uuid, filter = $4::text, input = $5::jsonb, workflow_id = $6::text,
    lease_s = coalesce($7::int, forebay.usual_job_lease_s()), full_until = NULL, updated_at = clock_timestamp()
WHERE binding.id = $1::uuid AND ($2::uuid IS NULL OR binding.workspace_id = $2) AND NOT binding.by_definition
RETURNING binding.workspace_id
