-- Webhooks go with their workspace.
DELETE FROM webhook WHERE workspace_id = $1::uuid
