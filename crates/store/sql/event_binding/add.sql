-- A binding. A type that is bound there already is a unique violation, a definition that does not exist a foreign
-- key's.
INSERT INTO forebay.event_binding (id, workspace_id, event_type, workflow_definition_id, filter, input, workflow_id,
                                   lease_s)
VALUES ($1::uuid, $2::uuid, $3::text, $4::uuid, $5::text, $6::jsonb, $7::text,
        coalesce($8::int, forebay.usual_job_lease_s()))
