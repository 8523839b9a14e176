-- Takes a lease that still runs from a holder that is known to be dead, for at most $3 s. Our holders' names end with
-- their process id; a name of any other form is never touched. $4 s of silence is death, if the caller's own heartbeats
-- were steady ($5); a process that ended is dead at once. No row: the holder lives, or is no process of ours.
UPDATE public.shedlock lock
SET lock_until = timezone('utc', clock_timestamp()) + make_interval(secs => $3::float8),
    locked_at = timezone('utc', clock_timestamp()), locked_by = $2::text
WHERE lock.name = $1::text
  AND EXISTS (
      SELECT 1 FROM forebay.process
       WHERE process.id::text = right(lock.locked_by, 36)
         AND (process.ended_at IS NOT NULL
              OR ($5::boolean AND process.seen_at < clock_timestamp() - make_interval(secs => $4::float8))))
RETURNING lock.name
