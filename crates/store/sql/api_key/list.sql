-- Keys that were not revoked, by id after $2: of the workspace $1, or of all and none.
(SELECT k.id, k.workspace_id, k.name, k.prefix, k.scopes, k.created_at, k.created_by, k.expires_at, k.last_used_at
 FROM forebay.api_key k
 WHERE k.revoked_at IS NULL AND k.workspace_id = $1::uuid AND k.id > $2::uuid
 ORDER BY k.id LIMIT $3::bigint)
UNION ALL
(SELECT k.id, k.workspace_id, k.name, k.prefix, k.scopes, k.created_at, k.created_by, k.expires_at, k.last_used_at
 FROM forebay.api_key k
 WHERE $1::uuid IS NULL AND k.revoked_at IS NULL AND k.id > $2::uuid
 ORDER BY k.id LIMIT $3::bigint)
ORDER BY id
