-- Who holds a lease now, and whether that is a process of ours that is dead ($2 s of silence) or none of ours. No row:
-- nobody.
SELECT lock.locked_by, process.id IS NOT NULL AS ours,
       coalesce(process.ended_at IS NOT NULL
                OR process.seen_at < clock_timestamp() - make_interval(secs => $2::float8), false) AS dead
FROM public.shedlock lock
LEFT JOIN forebay.process ON process.id::text = right(lock.locked_by, 36)
WHERE lock.name = $1::text
  AND lock.lock_until > timezone('utc', clock_timestamp())
