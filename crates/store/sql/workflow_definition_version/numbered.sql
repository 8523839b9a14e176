-- One version of a definition, by its number.
SELECT graph, source
FROM forebay.workflow_definition_version
WHERE workflow_definition_id = $1::uuid AND number = $2::int
