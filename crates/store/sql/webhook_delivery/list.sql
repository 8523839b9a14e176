-- Deliveries of a webhook before a position, newest first. Optional filters: status $2, delivery $5.
SELECT delivery.id, delivery.webhook_id, delivery.execution_id, delivery.event, delivery.status, delivery.attempts,
       delivery.due_at, delivery.last_status, delivery.last_error, delivery.created_at, delivery.ended_at
FROM forebay.webhook_delivery delivery
WHERE delivery.webhook_id = $1::uuid
  AND ($2::text IS NULL OR delivery.status = $2)
  AND ($3::timestamptz IS NULL OR (delivery.created_at, delivery.id) < ($3, $4::uuid))
  AND ($5::uuid IS NULL OR delivery.id = $5)
ORDER BY delivery.created_at DESC, delivery.id DESC
LIMIT $6::bigint
