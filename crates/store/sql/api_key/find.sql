-- The active key with a hash, of a workspace that is not deleted, and whether its use has to be recorded.
SELECT key.id, key.workspace_id, key.scopes,
       coalesce(key.last_used_at < clock_timestamp() - interval '1 minute', true) AS use_unrecorded
FROM forebay.api_key key LEFT JOIN forebay.workspace ON workspace.id = key.workspace_id
WHERE key.hash = $1::bytea
  AND key.revoked_at IS NULL
  AND coalesce(key.expires_at > clock_timestamp(), true)
  AND workspace.deleted_at IS NULL
