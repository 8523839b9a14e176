-- The root of a child of a workspace, locked; no row if the execution is a root itself. A tree's rows are locked from
-- the root down.
SELECT root.id FROM forebay.workflow_execution root
WHERE root.id = (SELECT child.root
                 FROM forebay.workflow_execution child
                 WHERE child.id = $1::uuid AND child.workspace_id = $2::uuid AND child.parent IS NOT NULL)
FOR UPDATE
