-- Revokes the tokens of a trigger.
UPDATE forebay.trigger
SET token_hash = NULL, token_prefix = NULL, previous_hash = NULL, previous_expires_at = NULL,
    updated_at = clock_timestamp()
WHERE trigger.id = $1::uuid
  AND ($2::uuid IS NULL OR trigger.workspace_id = $2)
  AND trigger.token_hash IS NOT NULL
RETURNING trigger.workspace_id
