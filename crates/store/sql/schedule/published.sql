-- The schedules that the published version of a definition declares.
SELECT definition.workspace_id, version.graph #> '{on,schedule}' AS rules, clock_timestamp() AS now
FROM forebay.workflow_definition definition
JOIN forebay.workflow_definition_version version ON version.id = definition.published_version
WHERE definition.id = $1::uuid
