-- Definitions that are not deleted, of the workspaces from $1 to $2, by workspace and name, after the position ($3,
-- $4).
SELECT definition.id, definition.workspace_id, definition.name, definition.status, definition.published_version,
       definition.concurrency, definition.key_concurrency, definition.max_attempts, definition.created_at,
       definition.updated_at, version.number AS published_number, version.content_hash AS published_hash
FROM forebay.workflow_definition definition
LEFT JOIN forebay.workflow_definition_version version ON version.id = definition.published_version
WHERE definition.deleted_at IS NULL
  AND definition.workspace_id BETWEEN $1::uuid AND $2::uuid
  AND (definition.workspace_id, definition.name) > ($3::uuid, $4::text)
ORDER BY definition.workspace_id, definition.name
LIMIT $5::bigint
