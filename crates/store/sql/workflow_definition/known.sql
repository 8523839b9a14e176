-- Was there ever such a definition, in its workspace ($2 null: any)? Its executions outlive it.
SELECT id FROM forebay.workflow_definition
WHERE id = $1::uuid
  AND workspace_id = coalesce($2::uuid, workspace_id)
