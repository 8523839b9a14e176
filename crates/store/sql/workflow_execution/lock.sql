-- Locks one execution of a workspace, so that its status cannot change before the caller's transaction ends.
SELECT status FROM forebay.workflow_execution WHERE id = $1::uuid AND workspace_id = $2::uuid FOR UPDATE
