-- Deleted definitions of a shard of which some ready items may not have been moved to a blocked stage yet.
SELECT id, workspace_id
FROM forebay.workflow_definition
WHERE deleted_at IS NOT NULL
  AND cleared_at IS NULL
  AND forebay.shard_of(workspace_id)::smallint = $1::smallint
ORDER BY workspace_id
LIMIT 20
