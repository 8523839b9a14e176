-- Takes a lease from a Forebay process that is known to be dead, for at most $3 s. Such a process has ended. Or it has
-- been silent for $4 s, and the caller's own heartbeats were steady ($5). The name of a Forebay holder ends with its
-- process id; a lease with any other holder is never touched. Returns no row if the holder is alive, or is not a
-- Forebay process.
UPDATE public.shedlock lock
SET lock_until = timezone('utc', clock_timestamp()) + make_interval(secs => $3::float8),
    locked_at = timezone('utc', clock_timestamp()), locked_by = $2::text
WHERE lock.name = $1::text
  AND EXISTS (
      SELECT 1 FROM forebay.process
       WHERE process.id::text = right(lock.locked_by, 36)
         AND (process.ended_at IS NOT NULL
              OR ($5::boolean AND process.heartbeat_at < clock_timestamp() - make_interval(secs => $4::float8))))
RETURNING lock.name
