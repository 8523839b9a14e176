-- Secrets whose data key is encrypted with another outer key than $1, in a stable order after a position.
SELECT workspace_id, name, version, value_sealed, key_sealed, key_id, hosts
FROM forebay.secret
WHERE key_id <> $1::text
  AND (workspace_id, name COLLATE "C") > ($2::uuid, $3::text)
ORDER BY workspace_id, name COLLATE "C"
LIMIT $4::bigint
