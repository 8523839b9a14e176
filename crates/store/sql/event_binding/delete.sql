-- Deletes a binding; its jobs stay. A binding that a definition made is deleted only with the definition.
DELETE FROM forebay.event_binding binding
WHERE binding.id = $1::uuid AND ($2::uuid IS NULL OR binding.workspace_id = $2) AND NOT binding.by_definition
RETURNING binding.workspace_id, binding.event_type
