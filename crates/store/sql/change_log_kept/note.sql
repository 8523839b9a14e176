-- Says from when on the log is whole, if that is not known: after the migration, and after a crash emptied it. What is
-- open now began after either. What lies beyond every transaction there has been is of another cluster, restored here:
-- it goes.
WITH s AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot()) AS next, (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text::xid8 AS before),
d AS (
    DELETE FROM forebay.change_log l USING s WHERE l.xid >= s.next)
INSERT INTO forebay.change_log_kept AS k (gone)
SELECT s.before FROM s
    ON CONFLICT (one) DO UPDATE SET gone = excluded.gone WHERE k.gone >= (SELECT s.next FROM s)
