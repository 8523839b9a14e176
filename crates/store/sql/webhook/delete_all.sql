-- Deletes the webhooks of a deleted workspace.
DELETE FROM forebay.webhook WHERE workspace_id = $1::uuid
