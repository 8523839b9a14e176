-- Deletes a webhook with its secrets. Its pending deliveries fail when they are due.
DELETE FROM forebay.webhook
WHERE webhook.id = $1::uuid AND ($2::uuid IS NULL OR webhook.workspace_id = $2)
RETURNING webhook.workspace_id, webhook.url
