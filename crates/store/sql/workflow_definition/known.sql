-- Did a definition with this id ever exist in workspace $2 (null: any)? The executions of a deleted definition stay.
SELECT id FROM forebay.workflow_definition
WHERE id = $1::uuid
  AND workspace_id = coalesce($2::uuid, workspace_id)
