-- Deliveries of a webhook of a status (null: any), the newest first, before a place; or one of them.
SELECT d.id, d.webhook_id, d.execution_id, d.event, d.status, d.attempts, d.due_at, d.last_status, d.last_error, d.created_at, d.ended_at
FROM forebay.webhook_delivery d
WHERE d.webhook_id = $1::uuid
  AND ($2::text IS NULL OR d.status = $2)
  AND ($3::timestamptz IS NULL OR (d.created_at, d.id) < ($3, $4::uuid))
  AND ($5::uuid IS NULL OR d.id = $5)
ORDER BY d.created_at DESC, d.id DESC
LIMIT $6::bigint
