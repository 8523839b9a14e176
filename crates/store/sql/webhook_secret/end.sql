-- Lets version $2, the newest, expire in $3 s, and deletes versions that already had an expiry.
WITH gone AS (
    DELETE FROM forebay.webhook_secret secret
    WHERE secret.webhook_id = $1::uuid AND secret.ends_at IS NOT NULL)
UPDATE forebay.webhook_secret secret
SET ends_at = clock_timestamp() + make_interval(secs => $3::float8)
WHERE secret.webhook_id = $1::uuid AND secret.version = $2::int AND secret.ends_at IS NULL
