-- Releases the holder's lease. The lease expires now, or $3 s after it was acquired if that is later.
UPDATE public.shedlock
SET lock_until = greatest(locked_at + make_interval(secs => $3::float8), timezone('utc', clock_timestamp()))
WHERE name = $1::text
  AND locked_by = $2::text
  AND lock_until > timezone('utc', clock_timestamp())
RETURNING name
