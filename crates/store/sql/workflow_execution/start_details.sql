-- What an external engine needs to know about executions to start them.
SELECT execution.id, execution.workspace_id, execution.workflow_definition_id, execution.version_id,
       execution.semantics, execution.priority, workspace.weight
FROM forebay.workflow_execution execution
JOIN forebay.workspace ON workspace.id = execution.workspace_id
WHERE execution.id = ANY ($1::uuid[])
