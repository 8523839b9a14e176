-- A workspace's definitions that hold something back: paused ones, and those with a limit.
SELECT id, status <> 'ACTIVE' AS paused
FROM workflow_definition
WHERE workspace_id = $1::uuid
  AND deleted_at IS NULL
  AND (status <> 'ACTIVE' OR concurrency IS NOT NULL)
