-- A definition that is not deleted, by id $1, or by name if $2 is given, in workspace $3 (null: any).
SELECT definition.id, definition.workspace_id, definition.name, definition.status, definition.published_version,
       definition.concurrency, definition.key_concurrency, definition.max_attempts, definition.created_at,
       definition.updated_at, version.number AS published_number, version.content_hash AS published_hash
FROM forebay.workflow_definition definition
LEFT JOIN forebay.workflow_definition_version version ON version.id = definition.published_version
WHERE definition.deleted_at IS NULL
  AND (definition.id = $1::uuid OR ($2::text IS NOT NULL AND definition.name = $2::text))
  AND definition.workspace_id = coalesce($3::uuid, definition.workspace_id)
LIMIT 2
