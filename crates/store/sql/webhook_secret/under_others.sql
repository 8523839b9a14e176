-- Secrets of webhooks whose key was sealed by another outer key than $1, in a stable order after a place.
SELECT s.webhook_id, s.workspace_id, s.version, s.value_sealed, s.key_sealed, s.key_id
FROM forebay.webhook_secret s
WHERE s.key_id <> $1::text
  AND (s.webhook_id, s.version) > ($2::uuid, $3::int)
ORDER BY s.webhook_id, s.version
LIMIT $4::bigint
