-- Changes a binding. A binding that a definition made changes only with the definition. Returns no row if another
-- request changed the binding since the caller read it ($8: the `updated_at` that the caller read).
UPDATE forebay.event_binding binding
SET workflow_definition_id = $3::uuid, filter = $4::text, input = $5::jsonb, workflow_id = $6::text,
    lease_s = coalesce($7::int, forebay.default_job_lease_s()), full_until = NULL, updated_at = clock_timestamp()
WHERE binding.id = $1::uuid AND ($2::uuid IS NULL OR binding.workspace_id = $2) AND NOT binding.by_definition
  AND binding.updated_at = $8::timestamptz
RETURNING binding.workspace_id
