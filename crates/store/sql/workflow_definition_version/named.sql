-- A version of a definition, by workspace and name: version number $3, or the published version if $3 is null. The
-- definition must be published and not deleted.
SELECT version.id, version.workflow_definition_id, version.timeout_ms
FROM forebay.workflow_definition definition
JOIN forebay.workflow_definition_version version ON version.workflow_definition_id = definition.id
WHERE definition.workspace_id = $1::uuid
  AND definition.name = $2::text
  AND definition.deleted_at IS NULL
  AND definition.published_version IS NOT NULL
  AND CASE WHEN $3::int IS NULL THEN version.id = definition.published_version ELSE version.number = $3::int END
