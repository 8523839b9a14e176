-- Marks a definition deleted: nothing new of it is accepted, what waits is failed by the promoter, what runs goes on.
UPDATE forebay.workflow_definition
SET deleted_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE id = $1::uuid
  AND workspace_id = $2::uuid
  AND deleted_at IS NULL
RETURNING name
