-- How old the oldest snapshot is that keeps deleted rows of this database from being removed: for how long a session or
-- a prepared transaction has held it, in s, and how many transactions ago its xmin is, replication slots included.
-- Sessions of other roles are seen with pg_read_all_stats only. A vacuum holds back nobody.
WITH held (since, age) AS (
    SELECT session.xact_start, age(session.backend_xmin) FROM pg_stat_activity session
    WHERE session.backend_xmin IS NOT NULL
      AND session.pid <> pg_backend_pid()
      AND session.backend_type <> 'autovacuum worker'
      AND coalesce(session.datname, current_database()) = current_database()
    UNION ALL
    SELECT prepared.prepared, age(prepared.transaction)
    FROM pg_prepared_xacts prepared
    WHERE prepared.database = current_database()
    UNION ALL
    SELECT NULL, age(slot.xmin) FROM pg_replication_slots slot WHERE slot.xmin IS NOT NULL)
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(held.since)), 0)::float8 AS seconds,
       coalesce(max(held.age), 0)::bigint AS transactions
FROM held
