-- Revokes a key that is not revoked yet, in workspace $2 (null: any workspace).
UPDATE forebay.api_key
SET revoked_at = clock_timestamp()
WHERE id = $1::uuid
  AND revoked_at IS NULL
  AND workspace_id IS NOT DISTINCT FROM coalesce($2::uuid, workspace_id)
RETURNING id, workspace_id, name
