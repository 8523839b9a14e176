-- Adds a binding. If the event type already has a binding there, the statement fails with a unique violation; if the
-- definition does not exist, with a foreign-key violation.
INSERT INTO forebay.event_binding (id, workspace_id, event_type, workflow_definition_id, filter, input, workflow_id,
                                   lease_s)
VALUES ($1::uuid, $2::uuid, $3::text, $4::uuid, $5::text, $6::jsonb, $7::text,
        coalesce($8::int, forebay.default_job_lease_s()))
