-- Secrets go with their workspace.
DELETE FROM forebay.secret WHERE workspace_id = $1::uuid
