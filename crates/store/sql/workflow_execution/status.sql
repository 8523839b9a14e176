-- The status of an execution without its payloads, for requests that wait for a terminal status.
SELECT status
FROM forebay.workflow_execution
WHERE id = $1::uuid
  AND workspace_id = coalesce($2::uuid, workspace_id)
