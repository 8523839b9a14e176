-- No token opens it any more.
UPDATE forebay.hook h
SET token_hash = NULL, token_prefix = NULL, previous_hash = NULL, previous_until = NULL, updated_at = clock_timestamp()
WHERE h.id = $1::uuid
  AND ($2::uuid IS NULL OR h.workspace_id = $2)
  AND h.token_hash IS NOT NULL
RETURNING h.workspace_id
