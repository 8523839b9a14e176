-- A living definition by id, or by name when $2 is given, in its workspace ($3 null: any).
SELECT d.id, d.workspace_id, d.name, d.status, d.published_version, d.concurrency, d.key_concurrency, d.max_attempts,
       d.created_at, d.updated_at, v.number AS published_number, v.content_hash AS published_hash
FROM forebay.workflow_definition d
LEFT JOIN forebay.workflow_definition_version v ON v.id = d.published_version
WHERE d.deleted_at IS NULL
  AND (d.id = $1::uuid OR ($2::text IS NOT NULL AND d.name = $2::text))
  AND d.workspace_id = coalesce($3::uuid, d.workspace_id)
LIMIT 2
