-- Deletes the secrets of a deleted workspace.
DELETE FROM forebay.secret WHERE workspace_id = $1::uuid
