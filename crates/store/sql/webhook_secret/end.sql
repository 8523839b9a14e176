-- The newest version is good for so many seconds more, older ones no longer.
WITH gone AS (DELETE FROM forebay.webhook_secret s WHERE s.webhook_id = $1::uuid AND s.ends_at IS NOT NULL)
UPDATE forebay.webhook_secret s
SET ends_at = clock_timestamp() + make_interval(secs => $3::float8)
WHERE s.webhook_id = $1::uuid AND s.version = $2::int AND s.ends_at IS NULL
