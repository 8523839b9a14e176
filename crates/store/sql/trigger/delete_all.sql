-- Deletes the triggers of a deleted workspace.
DELETE FROM forebay.trigger WHERE workspace_id = $1::uuid
