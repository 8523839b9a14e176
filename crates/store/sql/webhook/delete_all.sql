-- Webhooks go with their workspace.
DELETE FROM forebay.webhook WHERE workspace_id = $1::uuid
