-- Records that a delivery failed. Returns for how many seconds all deliveries of the webhook have failed.
UPDATE forebay.webhook
SET failing_since = coalesce(webhook.failing_since, clock_timestamp())
WHERE webhook.id = $1::uuid AND webhook.disabled_at IS NULL
RETURNING greatest(extract(epoch FROM clock_timestamp() - webhook.failing_since), 0)::float8 AS failing_s
