-- What an engine elsewhere is told of an execution when it is started.
SELECT execution.workspace_id, execution.workflow_definition_id, execution.version_id, execution.semantics,
       execution.priority, workspace.weight
FROM forebay.workflow_execution execution
JOIN forebay.workspace ON workspace.id = execution.workspace_id
WHERE execution.id = $1::uuid
