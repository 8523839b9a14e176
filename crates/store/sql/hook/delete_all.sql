-- Hooks go with their workspace.
DELETE FROM forebay.hook WHERE workspace_id = $1::uuid
