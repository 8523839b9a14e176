-- The living key of a hash, of a workspace that lives too, and whether its use is to be noted.
SELECT k.id, k.workspace_id, k.scopes,
       coalesce(k.last_used_at < clock_timestamp() - interval '1 minute', true) AS unnoted
FROM forebay.api_key k LEFT JOIN forebay.workspace w ON w.id = k.workspace_id
WHERE k.hash = $1::bytea
  AND k.revoked_at IS NULL
  AND coalesce(k.expires_at > clock_timestamp(), true)
  AND w.deleted_at IS NULL
