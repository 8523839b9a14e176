-- Locks one execution of a workspace, and returns whether a process owns it.
SELECT status, owner IS NOT NULL AS owned, parent IS NOT NULL AS child
FROM forebay.workflow_execution
WHERE id = $1::uuid AND workspace_id = $2::uuid
FOR UPDATE
