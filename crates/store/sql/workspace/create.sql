-- Creates a workspace. An unknown tier is a foreign-key violation; a name in use is a unique violation.
WITH created AS (
    INSERT INTO forebay.workspace (id, name, tier, limit_override, weight, max_backlog)
    VALUES ($1::uuid, $2::text, $3::text, $4::int, $5::smallint, $6::int)
    RETURNING id)
INSERT INTO forebay.backlog (workspace_id) SELECT id FROM created
