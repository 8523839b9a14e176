INSERT INTO api_key (id, workspace_id, name, hash) VALUES ($1::uuid, $2::uuid, $3::text, $4::bytea)
