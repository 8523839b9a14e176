-- Sets a new token. The previous token works for another $5 s. If $6, only a trigger without a token gets one.
UPDATE forebay.trigger
SET token_hash = $3::bytea, token_prefix = $4::text, rotated_at = clock_timestamp(), updated_at = clock_timestamp(),
    previous_hash = CASE WHEN $5::float8 > 0 THEN trigger.token_hash END,
    previous_expires_at = CASE WHEN $5 > 0 AND trigger.token_hash IS NOT NULL
                          THEN clock_timestamp() + make_interval(secs => $5) END
WHERE trigger.id = $1::uuid
  AND ($2::uuid IS NULL OR trigger.workspace_id = $2)
  AND (NOT $6::boolean OR trigger.token_hash IS NULL)
RETURNING trigger.workspace_id
