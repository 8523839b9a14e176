-- Who holds a lease now, and whether that is a process of ours that is dead ($2 s of silence) or none of ours. No row:
-- nobody.
SELECT s.locked_by, p.id IS NOT NULL AS ours,
       coalesce(p.ended_at IS NOT NULL OR p.seen_at < clock_timestamp() - make_interval(secs => $2::float8), false) AS dead
FROM public.shedlock s
LEFT JOIN forebay.process p ON p.id::text = right(s.locked_by, 36)
WHERE s.name = $1::text
  AND s.lock_until > timezone('utc', clock_timestamp())
