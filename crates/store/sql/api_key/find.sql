-- The living key of a hash, of a workspace that lives too, and whether its use is to be noted.
SELECT key.id, key.workspace_id, key.scopes,
       coalesce(key.last_used_at < clock_timestamp() - interval '1 minute', true) AS unnoted
FROM forebay.api_key key LEFT JOIN forebay.workspace ON workspace.id = key.workspace_id
WHERE key.hash = $1::bytea
  AND key.revoked_at IS NULL
  AND coalesce(key.expires_at > clock_timestamp(), true)
  AND workspace.deleted_at IS NULL
