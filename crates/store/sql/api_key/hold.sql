-- The living key that makes another, held until that one is stored: a revocation waits, and then finds both.
SELECT maker.expires_at
FROM forebay.api_key maker
WHERE maker.id = $1::uuid
  AND maker.revoked_at IS NULL
  AND coalesce(maker.expires_at > clock_timestamp(), true)
FOR SHARE
