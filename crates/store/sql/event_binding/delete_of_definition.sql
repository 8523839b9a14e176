-- Deletes the binding of a deleted definition.
DELETE FROM forebay.event_binding binding WHERE binding.workflow_definition_id = $1::uuid
