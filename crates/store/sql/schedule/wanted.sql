-- The schedules that the published version of a definition asks for.
SELECT d.workspace_id, v.graph #> '{on,schedule}' AS rules, clock_timestamp() AS now
FROM forebay.workflow_definition d JOIN forebay.workflow_definition_version v ON v.id = d.published_version
WHERE d.id = $1::uuid
