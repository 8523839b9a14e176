-- One execution of a workspace, locked: what it is now it stays until the caller is done.
SELECT status FROM forebay.workflow_execution WHERE id = $1::uuid AND workspace_id = $2::uuid FOR UPDATE
