-- What is visible at or above $1 and was not drained before ($2, by seq), oldest first, and below which everything is
-- finished. One statement, one snapshot: with a horizon read apart, what ends in between would be lost. There is always a
-- first row, without a change if nothing is new. `gone` is null after a crash emptied the log.
WITH h AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS horizon, (SELECT k.gone FROM change_log_kept k LIMIT 1) AS gone)
SELECT h.horizon::text AS horizon, h.gone::text AS gone, c.xid::text AS xid, c.seq, c.at, c.topic, c.op, c.ref,
       c.workspace_id, c.record, c.old_record
  FROM h LEFT JOIN LATERAL (
       SELECT l.xid, l.seq, l.at, l.topic, l.op, l.ref, l.workspace_id, l.record, l.old_record
         FROM change_log l
        WHERE l.xid >= $1::text::xid8 AND l.seq <> ALL ($2::bigint[])
        ORDER BY l.xid, l.seq
        LIMIT $3) c ON true
 ORDER BY c.xid, c.seq
