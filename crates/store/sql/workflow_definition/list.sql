-- Living definitions of the workspaces from $1 to $2, by workspace and name, after the place ($3, $4).
SELECT d.id, d.workspace_id, d.name, d.status, d.published_version, d.concurrency, d.key_concurrency, d.max_attempts,
       d.created_at, d.updated_at, v.number AS published_number, v.content_hash AS published_hash
FROM forebay.workflow_definition d
LEFT JOIN forebay.workflow_definition_version v ON v.id = d.published_version
WHERE d.deleted_at IS NULL
  AND d.workspace_id BETWEEN $1::uuid AND $2::uuid
  AND (d.workspace_id, d.name) > ($3::uuid, $4::text)
ORDER BY d.workspace_id, d.name
LIMIT $5::bigint
