-- A new definition, a draft until it is published. A taken name is a unique violation.
INSERT INTO forebay.workflow_definition (id, workspace_id, name, concurrency, key_concurrency, max_attempts)
VALUES ($1::uuid, $2::uuid, $3::text, $4::int, coalesce($5::int, 1), coalesce($6::int, 3))
