-- Adds a version of a webhook's secret. If another rotation added this version first, the statement fails with a unique
-- violation.
INSERT INTO forebay.webhook_secret (webhook_id, version, workspace_id, value_sealed, key_sealed, key_id)
VALUES ($1::uuid, $2::int, $3::uuid, $4::bytea, $5::bytea, $6::text)
