-- The age of the oldest snapshot that prevents vacuum from removing deleted rows. `seconds` is how long a session or a
-- prepared transaction has held it. `transactions` is the age of its xmin, including those of replication slots.
-- Sessions of other roles are visible only with `pg_read_all_stats`. Autovacuum workers do not count.
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
