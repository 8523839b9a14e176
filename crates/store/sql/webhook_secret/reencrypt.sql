-- Replaces the encrypted data key of a webhook's secret, under the outer key $5. Nothing changes if another process has
-- re-encrypted it.
UPDATE forebay.webhook_secret
SET key_sealed = $4::bytea, key_id = $5::text
WHERE webhook_id = $1::uuid
  AND version = $2::int
  AND key_id = $3::text
