-- Which process holds a lease now, whether it is a Forebay process, and whether that process is dead: ended, or silent
-- for $2 s. Returns no row if no process holds the lease.
SELECT lock.locked_by, process.id IS NOT NULL AS is_forebay,
       coalesce(process.ended_at IS NOT NULL
                OR process.heartbeat_at < clock_timestamp() - make_interval(secs => $2::float8), false) AS dead
FROM public.shedlock lock
LEFT JOIN forebay.process ON process.id::text = right(lock.locked_by, 36)
WHERE lock.name = $1::text
  AND lock.lock_until > timezone('utc', clock_timestamp())
