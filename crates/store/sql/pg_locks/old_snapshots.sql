-- Transactions that hold a snapshot older than a second, and their sessions, without session $1. If this role may not
-- see when a transaction of another role began, that transaction is missing.
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
