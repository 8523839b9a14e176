INSERT INTO forebay.api_key (id, workspace_id, name, hash, prefix, scopes, expires_at, created_by, parent_id)
VALUES ($1::uuid, $2::uuid, $3::text, $4::bytea, $5::text, $6::text[], $7::timestamptz, $8::text, $9::uuid)
