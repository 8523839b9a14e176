-- Pending, delivered or failed -> pending. The delivery is due now, and failures are retried for another day.
UPDATE forebay.webhook_delivery delivery
SET status = 'PENDING', due_at = clock_timestamp(), since = clock_timestamp(), ended_at = NULL
WHERE delivery.id = $1::uuid
  AND delivery.webhook_id = $2::uuid
  AND delivery.status IN ('PENDING', 'DELIVERED', 'FAILED')
