-- Secrets of a workspace by name, encrypted.
SELECT workspace_id, name, version, value_sealed, key_sealed, key_id, hosts
FROM forebay.secret
WHERE workspace_id = $1::uuid
  AND name = ANY ($2::text[])
ORDER BY name
