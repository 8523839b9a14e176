-- Another token; the one before opens for $5 s more. With $6 only a hook that has none gets one.
UPDATE forebay.hook
SET token_hash = $3::bytea, token_prefix = $4::text, rotated_at = clock_timestamp(), updated_at = clock_timestamp(),
    previous_hash = CASE WHEN $5::float8 > 0 THEN hook.token_hash END,
    previous_until = CASE WHEN $5 > 0 AND hook.token_hash IS NOT NULL
                          THEN clock_timestamp() + make_interval(secs => $5) END
WHERE hook.id = $1::uuid
  AND ($2::uuid IS NULL OR hook.workspace_id = $2)
  AND (NOT $6::boolean OR hook.token_hash IS NULL)
RETURNING hook.workspace_id
