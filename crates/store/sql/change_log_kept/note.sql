-- Says from when on the log is whole, if that is not known: after the migration, and after a crash emptied it. What is
-- open now began after either. What lies beyond every transaction there has been is of another cluster, restored here:
-- it goes.
WITH snapshot AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot()) AS next,
           (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text::xid8 AS before),
of_another_cluster AS (
    DELETE FROM forebay.change_log entry USING snapshot WHERE entry.xid >= snapshot.next)
INSERT INTO forebay.change_log_kept AS kept (gone)
SELECT snapshot.before FROM snapshot
    ON CONFLICT (one) DO UPDATE SET gone = excluded.gone WHERE kept.gone >= (SELECT snapshot.next FROM snapshot)
