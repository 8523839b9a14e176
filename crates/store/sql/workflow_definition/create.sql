-- Creates a definition, which is a draft until it is published. If the name is in use, the statement fails with a
-- unique violation.
INSERT INTO forebay.workflow_definition (id, workspace_id, name, concurrency, key_concurrency, max_attempts)
VALUES ($1::uuid, $2::uuid, $3::text, $4::int, coalesce($5::int, 1), coalesce($6::int, 3))
