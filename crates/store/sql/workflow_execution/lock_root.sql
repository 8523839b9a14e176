-- The root of a child of a workspace, locked; no row if the execution is a root itself. A tree's rows are locked from
-- the root down.
SELECT r.id FROM forebay.workflow_execution r
WHERE r.id = (SELECT c.root FROM forebay.workflow_execution c WHERE c.id = $1::uuid AND c.workspace_id = $2::uuid AND c.parent IS NOT NULL)
FOR UPDATE
