-- Locks the active key that creates another key, until the new key is stored. A concurrent revocation of the locked key
-- waits, and then finds the new key too.
SELECT maker.expires_at
FROM forebay.api_key maker
WHERE maker.id = $1::uuid
  AND maker.revoked_at IS NULL
  AND coalesce(maker.expires_at > clock_timestamp(), true)
FOR SHARE
