-- ACTIVE -> PAUSED, or back: $3 is the current status, $4 the new one. Returns no row if the definition already has the
-- new status, or is a draft.
UPDATE forebay.workflow_definition
SET status = $4::text, updated_at = clock_timestamp()
WHERE id = $1::uuid
  AND workspace_id = $2::uuid
  AND deleted_at IS NULL
  AND status = $3::text
RETURNING id
