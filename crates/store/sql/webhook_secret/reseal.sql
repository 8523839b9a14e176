-- Puts a data key under another outer key. One that was resealed by somebody else stays as it is.
UPDATE forebay.webhook_secret
SET key_sealed = $4::bytea, key_id = $5::text
WHERE webhook_id = $1::uuid
  AND version = $2::int
  AND key_id = $3::text
