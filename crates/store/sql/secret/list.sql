-- A workspace's secrets without values, by name after $2.
SELECT name, version, key_id, created_at, updated_at, created_by, hosts
FROM forebay.secret
WHERE workspace_id = $1::uuid
  AND name COLLATE "C" > $2::text
ORDER BY name COLLATE "C"
LIMIT $3::bigint
