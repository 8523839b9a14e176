-- Declares silent processes dead. If such a process still runs, its next heartbeat returns `declared_dead`. Only a
-- process whose own heartbeats were steady during that time may call this.
UPDATE forebay.process SET ended_at = clock_timestamp(), died = true
WHERE ended_at IS NULL
  AND heartbeat_at < clock_timestamp() - make_interval(secs => $1::float8)
RETURNING id
