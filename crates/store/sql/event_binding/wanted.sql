-- Does the published version of this definition bind an event?
SELECT v.graph #>> '{on,event,type}' AS event_type
FROM forebay.workflow_definition d JOIN forebay.workflow_definition_version v ON v.id = d.published_version
WHERE d.id = $1::uuid AND v.graph #> '{on,event}' IS NOT NULL
