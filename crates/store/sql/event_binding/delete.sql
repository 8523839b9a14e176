-- A binding goes; jobs that it made stay. One that a definition made goes with it.
DELETE FROM forebay.event_binding binding
WHERE binding.id = $1::uuid AND ($2::uuid IS NULL OR binding.workspace_id = $2) AND NOT binding.by_definition
RETURNING binding.workspace_id, binding.event_type
