-- The definitions of a workspace that are not deleted and whose name has this prefix.
SELECT id FROM forebay.workflow_definition
WHERE workspace_id = $1::uuid
  AND deleted_at IS NULL
  AND starts_with(name, $2::text)
ORDER BY name
LIMIT $3::bigint
