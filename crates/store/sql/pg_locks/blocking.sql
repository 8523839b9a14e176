-- The transactions that block the session with pid $1, and the sessions that run them.
SELECT DISTINCT ON (blocking.pid) blocking.pid, coalesce(session.application_name, '') AS application_name,
       coalesce(session.state, 'unknown') AS state, session.query_start::text AS query_start,
       extract(epoch FROM clock_timestamp() - session.xact_start)::float8 AS open_s,
       held.virtualtransaction AS transaction
FROM unnest(pg_blocking_pids($1::int)) AS blocking(pid)
JOIN pg_locks held ON held.pid = blocking.pid
LEFT JOIN pg_stat_activity session ON session.pid = blocking.pid
ORDER BY blocking.pid
