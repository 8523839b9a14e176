-- Pending, delivered or failed -> pending, due now and tried for another day.
UPDATE forebay.webhook_delivery d
SET status = 'PENDING', due_at = clock_timestamp(), since = clock_timestamp(), ended_at = NULL
WHERE d.id = $1::uuid
  AND d.webhook_id = $2::uuid
  AND d.status IN ('PENDING', 'DELIVERED', 'FAILED')
