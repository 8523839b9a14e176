-- Does the published version of this definition bind an event?
SELECT version.graph #>> '{on,event,type}' AS event_type
FROM forebay.workflow_definition definition
JOIN forebay.workflow_definition_version version ON version.id = definition.published_version
WHERE definition.id = $1::uuid AND version.graph #> '{on,event}' IS NOT NULL
