-- No token opens it any more.
UPDATE forebay.hook
SET token_hash = NULL, token_prefix = NULL, previous_hash = NULL, previous_until = NULL, updated_at = clock_timestamp()
WHERE hook.id = $1::uuid
  AND ($2::uuid IS NULL OR hook.workspace_id = $2)
  AND hook.token_hash IS NOT NULL
RETURNING hook.workspace_id
