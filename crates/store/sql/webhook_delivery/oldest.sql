-- How many seconds the oldest due delivery has been due; 0 if none is due.
SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(delivery.due_at)), 0), 0)::float8 AS age_s
FROM forebay.webhook_delivery delivery
WHERE delivery.due_at IS NOT NULL
