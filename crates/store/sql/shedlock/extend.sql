-- The holder keeps its lease for another $3 s from now; one that is over or another's is not kept.
UPDATE public.shedlock
SET lock_until = timezone('utc', clock_timestamp()) + make_interval(secs => $3::float8)
WHERE name = $1::text
  AND locked_by = $2::text
  AND lock_until > timezone('utc', clock_timestamp())
RETURNING name
