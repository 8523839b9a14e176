-- A webhook goes with its secrets; what was to be told to it fails when it falls due.
DELETE FROM forebay.webhook
WHERE webhook.id = $1::uuid AND ($2::uuid IS NULL OR webhook.workspace_id = $2)
RETURNING webhook.workspace_id, webhook.url
