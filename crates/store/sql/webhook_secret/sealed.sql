-- What a webhook's messages are signed with now, the newest first.
SELECT s.webhook_id, s.workspace_id, s.version, s.value_sealed, s.key_sealed, s.key_id
FROM forebay.webhook_secret s
WHERE s.webhook_id = ANY ($1::uuid[])
  AND coalesce(s.ends_at > clock_timestamp(), true)
ORDER BY s.webhook_id, s.version DESC
