-- The session that migrates this database: it holds the advisory lock of `store::migrate`.
SELECT held.pid, coalesce(session.application_name, '') AS application_name,
       coalesce(session.state, 'unknown') AS state, session.query_start::text AS query_start,
       extract(epoch FROM clock_timestamp() - session.xact_start)::float8 AS open_s,
       held.virtualtransaction AS transaction
FROM pg_locks held
LEFT JOIN pg_stat_activity session ON session.pid = held.pid
WHERE held.locktype = 'advisory'
  AND held.granted
  AND held.objsubid = 1
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (held.classid::bigint << 32) | held.objid::bigint = hashtextextended('forebay.migrate', 0)
