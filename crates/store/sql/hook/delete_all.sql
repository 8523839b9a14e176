-- Hooks go with their workspace.
DELETE FROM hook WHERE workspace_id = $1::uuid
