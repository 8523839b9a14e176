-- What is known of a workspace's secrets, by name after $2; never what they hold.
SELECT name, version, key_id, created_at, updated_at, created_by, hosts
FROM forebay.secret
WHERE workspace_id = $1::uuid
  AND name COLLATE "C" > $2::text
ORDER BY name COLLATE "C"
LIMIT $3::bigint
