-- The encrypted secrets that sign the messages of these webhooks now, the newest of each webhook first.
SELECT secret.webhook_id, secret.workspace_id, secret.version, secret.value_sealed, secret.key_sealed, secret.key_id
FROM forebay.webhook_secret secret
WHERE secret.webhook_id = ANY ($1::uuid[])
  AND coalesce(secret.ends_at > clock_timestamp(), true)
ORDER BY secret.webhook_id, secret.version DESC
