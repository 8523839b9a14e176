-- Extends the lease of holder $2 to $3 s from now. Returns no row if the lease has expired, or if another process holds
-- it.
UPDATE public.shedlock
SET lock_until = timezone('utc', clock_timestamp()) + make_interval(secs => $3::float8)
WHERE name = $1::text
  AND locked_by = $2::text
  AND lock_until > timezone('utc', clock_timestamp())
RETURNING name
