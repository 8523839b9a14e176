-- Something was not taken; for how long nothing was, in seconds.
UPDATE forebay.webhook w
SET failing_since = coalesce(w.failing_since, clock_timestamp())
WHERE w.id = $1::uuid AND w.disabled_at IS NULL
RETURNING greatest(extract(epoch FROM clock_timestamp() - w.failing_since), 0)::float8 AS failing_s
