-- Puts a data key under another outer key. One that was set anew, or resealed by somebody else, stays as it is.
UPDATE forebay.secret
SET key_sealed = $5::bytea, key_id = $6::text
WHERE workspace_id = $1::uuid
  AND name = $2::text
  AND version = $3::int
  AND key_id = $4::text
