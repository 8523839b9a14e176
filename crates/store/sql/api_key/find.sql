-- The living key of a hash, and its workspace if that lives too.
SELECT k.id, k.workspace_id FROM api_key k LEFT JOIN workspace w ON w.id = k.workspace_id
WHERE k.hash = $1::bytea
  AND k.revoked_at IS NULL
  AND w.deleted_at IS NULL
