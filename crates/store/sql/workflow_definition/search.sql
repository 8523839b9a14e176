-- The living definitions of a workspace whose name begins so.
SELECT id FROM forebay.workflow_definition
WHERE workspace_id = $1::uuid
  AND deleted_at IS NULL
  AND starts_with(name, $2::text)
ORDER BY name
LIMIT $3::bigint
