-- Acquires a lease for at most $3 s, if no process holds it. Returns no row if another process holds the lease. All
-- times come from the database's clock and are UTC, so that programs in any language and time zone agree.
INSERT INTO public.shedlock AS lock (name, lock_until, locked_at, locked_by)
VALUES ($1::text, timezone('utc', clock_timestamp()) + make_interval(secs => $3::float8),
        timezone('utc', clock_timestamp()), $2::text)
ON CONFLICT (name) DO UPDATE
SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by
WHERE lock.lock_until <= timezone('utc', clock_timestamp())
RETURNING lock.name
