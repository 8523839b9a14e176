-- The versions of a definition before a number, newest first, without their graphs.
SELECT v.id, v.number, v.content_hash, v.timeout_ms, v.created_at, v.id IS NOT DISTINCT FROM d.published_version AS published
FROM forebay.workflow_definition_version v
JOIN forebay.workflow_definition d ON d.id = v.workflow_definition_id
WHERE v.workflow_definition_id = $1::uuid
  AND v.number < $2::int
ORDER BY v.number DESC
LIMIT $3::bigint
