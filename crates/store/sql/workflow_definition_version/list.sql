-- The versions of a definition before a number, newest first, without their graphs.
SELECT version.id, version.number, version.content_hash, version.timeout_ms, version.created_at,
       version.id IS NOT DISTINCT FROM definition.published_version AS published
FROM forebay.workflow_definition_version version
JOIN forebay.workflow_definition definition ON definition.id = version.workflow_definition_id
WHERE version.workflow_definition_id = $1::uuid
  AND version.number < $2::int
ORDER BY version.number DESC
LIMIT $3::bigint
