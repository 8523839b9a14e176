-- The event type that the published version of a definition binds. Returns no row if it binds none.
SELECT version.graph #>> '{on,event,type}' AS event_type
FROM forebay.workflow_definition definition
JOIN forebay.workflow_definition_version version ON version.id = definition.published_version
WHERE definition.id = $1::uuid AND version.graph #> '{on,event}' IS NOT NULL
