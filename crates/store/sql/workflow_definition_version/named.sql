-- A version of a living, published definition of a workspace by its name: the numbered one, or the published one.
SELECT v.id, v.workflow_definition_id, v.timeout_ms
FROM forebay.workflow_definition d
JOIN forebay.workflow_definition_version v ON v.workflow_definition_id = d.id
WHERE d.workspace_id = $1::uuid
  AND d.name = $2::text
  AND d.deleted_at IS NULL
  AND d.published_version IS NOT NULL
  AND CASE WHEN $3::int IS NULL THEN v.id = d.published_version ELSE v.number = $3::int END
