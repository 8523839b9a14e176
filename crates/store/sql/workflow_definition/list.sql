-- A workspace's living definitions, by id.
SELECT d.id, d.workspace_id, d.name, d.status, d.published_version, d.concurrency, d.key_concurrency, d.max_attempts,
       d.created_at, d.updated_at, v.number AS published_number, v.content_hash AS published_hash
FROM workflow_definition d
LEFT JOIN workflow_definition_version v ON v.id = d.published_version
WHERE d.deleted_at IS NULL
  AND d.workspace_id = $1::uuid
  AND d.id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY d.id
LIMIT $3::bigint
