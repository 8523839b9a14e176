-- Deletes the trigger of a deleted definition.
DELETE FROM forebay.trigger WHERE workflow_definition_id = $1::uuid
