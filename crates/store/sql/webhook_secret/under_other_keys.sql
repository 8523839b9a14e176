-- Secrets of webhooks whose data key is encrypted with another outer key than $1, in a stable order after a position.
SELECT secret.webhook_id, secret.workspace_id, secret.version, secret.value_sealed, secret.key_sealed, secret.key_id
FROM forebay.webhook_secret secret
WHERE secret.key_id <> $1::text
  AND (secret.webhook_id, secret.version) > ($2::uuid, $3::int)
ORDER BY secret.webhook_id, secret.version
LIMIT $4::bigint
