-- ACTIVE -> PAUSED, or back: $3 the status it leaves, $4 the one it takes. No row: it is in neither, or there already.
UPDATE forebay.workflow_definition
SET status = $4::text, updated_at = clock_timestamp()
WHERE id = $1::uuid
  AND workspace_id = $2::uuid
  AND deleted_at IS NULL
  AND status = $3::text
RETURNING id
