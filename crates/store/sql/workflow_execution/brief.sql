-- What an engine elsewhere is told of an execution when it is started.
SELECT e.workspace_id, e.workflow_definition_id, e.version_id, e.semantics, e.priority, w.weight
FROM forebay.workflow_execution e
JOIN forebay.workspace w ON w.id = e.workspace_id
WHERE e.id = $1::uuid
