-- Secrets go with their workspace.
DELETE FROM secret WHERE workspace_id = $1::uuid
