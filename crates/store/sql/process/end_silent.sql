-- Declares the silent dead, so that a zombie's next heartbeat tells it so. Only a process whose own heartbeats
-- were steady all that time may say this of another.
UPDATE forebay.process SET ended_at = clock_timestamp(), died = true
WHERE ended_at IS NULL
  AND seen_at < clock_timestamp() - make_interval(secs => $1::float8)
RETURNING id
