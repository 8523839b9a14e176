-- Replaces the encrypted data key of a secret, under the outer key $6. Nothing changes if the secret was set again, or
-- if another process has re-encrypted it.
UPDATE forebay.secret
SET key_sealed = $5::bytea, key_id = $6::text
WHERE workspace_id = $1::uuid
  AND name = $2::text
  AND version = $3::int
  AND key_id = $4::text
