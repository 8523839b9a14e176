-- Locks the root of a child execution. Returns no row if the execution is itself a root. The rows of a tree are always
-- locked from the root down.
SELECT root.id FROM forebay.workflow_execution root
WHERE root.id = (SELECT child.root
                 FROM forebay.workflow_execution child
                 WHERE child.id = $1::uuid AND child.workspace_id = $2::uuid AND child.parent IS NOT NULL)
FOR UPDATE
