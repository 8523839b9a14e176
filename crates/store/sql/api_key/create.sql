INSERT INTO api_key (id, workspace_id, name, hash, prefix, scopes, expires_at)
VALUES ($1::uuid, $2::uuid, $3::text, $4::bytea, $5::text, $6::text[], $7::timestamptz)
