-- Marks a definition deleted. New start requests are refused, the promoter fails its queued items, and running
-- executions continue.
UPDATE forebay.workflow_definition
SET deleted_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE id = $1::uuid
  AND workspace_id = $2::uuid
  AND deleted_at IS NULL
RETURNING name
