-- The transactions beside the session $1 that hold a snapshot of more than a second ago, and whose they are. A role
-- that may not see when another's began does not find it.
SELECT DISTINCT ON (session.pid) session.pid, coalesce(session.application_name, '') AS application_name,
       coalesce(session.state, 'unknown') AS state, session.query_start::text AS query_start,
       extract(epoch FROM clock_timestamp() - session.xact_start)::float8 AS open_s,
       held.virtualtransaction AS transaction
FROM pg_stat_activity session
JOIN pg_locks held ON held.pid = session.pid
WHERE session.datname = current_database()
  AND session.backend_type = 'client backend'
  AND session.backend_xmin IS NOT NULL
  AND session.xact_start < clock_timestamp() - interval '1 second'
  AND session.pid NOT IN ($1::int, pg_backend_pid())
ORDER BY session.pid
