-- How an execution stands, and nothing of what it holds: for those who wait for its end.
SELECT status
FROM forebay.workflow_execution
WHERE id = $1::uuid
  AND workspace_id = coalesce($2::uuid, workspace_id)
