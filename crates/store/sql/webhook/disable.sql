-- Disables a webhook, with the reason.
UPDATE forebay.webhook
SET disabled_at = clock_timestamp(), disabled_reason = $2::text, updated_at = clock_timestamp()
WHERE id = $1::uuid AND disabled_at IS NULL
RETURNING workspace_id
