-- A deleted definition binds nothing.
DELETE FROM forebay.event_binding b WHERE b.workflow_definition_id = $1::uuid
