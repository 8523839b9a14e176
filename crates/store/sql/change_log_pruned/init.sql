-- Records from which transaction on the log is complete, if that is unknown: after the migration, or after a crash
-- emptied the log. Every transaction that is open now began after the migration or the crash, so the log misses none of
-- its entries. An entry whose transaction id this cluster has not reached yet was restored from another cluster. Such
-- entries are deleted.
WITH snapshot AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot()) AS next,
           (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text::xid8 AS before),
of_another_cluster AS (
    DELETE FROM forebay.change_log entry USING snapshot WHERE entry.xid >= snapshot.next)
INSERT INTO forebay.change_log_pruned AS state (pruned_xid)
SELECT snapshot.before FROM snapshot
    ON CONFLICT (one) DO UPDATE SET pruned_xid = excluded.pruned_xid
 WHERE state.pruned_xid >= (SELECT snapshot.next FROM snapshot)
