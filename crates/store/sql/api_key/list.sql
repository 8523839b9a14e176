-- Unrevoked keys by id, after $2: those of workspace $1, or all keys including root keys if $1 is null.
(SELECT key.id, key.workspace_id, key.name, key.prefix, key.scopes, key.created_at, key.created_by, key.expires_at,
        key.last_used_at
 FROM forebay.api_key key
 WHERE key.revoked_at IS NULL AND key.workspace_id = $1::uuid AND key.id > $2::uuid
 ORDER BY key.id LIMIT $3::bigint)
UNION ALL
(SELECT key.id, key.workspace_id, key.name, key.prefix, key.scopes, key.created_at, key.created_by, key.expires_at,
        key.last_used_at
 FROM forebay.api_key key
 WHERE $1::uuid IS NULL AND key.revoked_at IS NULL AND key.id > $2::uuid
 ORDER BY key.id LIMIT $3::bigint)
ORDER BY id
