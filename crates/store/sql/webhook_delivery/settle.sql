-- Sending -> delivered, failed, or pending again in $4 s. If another process has claimed the delivery since, no row
-- changes.
UPDATE forebay.webhook_delivery delivery
SET status = $3::text,
    due_at = CASE WHEN $3 = 'PENDING' THEN clock_timestamp() + make_interval(secs => $4::float8) END,
    ended_at = CASE WHEN $3 <> 'PENDING' THEN clock_timestamp() END,
    claim_id = NULL, last_status = $5::int, last_error = $6::text
WHERE delivery.id = $1::uuid
  AND delivery.status = 'SENDING'
  AND delivery.claim_id = $2::uuid
