-- What is visible at or above $1 and was not drained before ($2, entries by seq), oldest first, at most $3 entries and
-- about $4 bytes of rows, and below which everything is finished. One statement, one snapshot: with a horizon read
-- apart, what ends in between would be lost. There is always a first row, without a change if nothing is new. `gone` is
-- null after a crash emptied the log. `cut`: there may be more.
WITH h AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS horizon, (SELECT k.gone FROM forebay.change_log_kept k LIMIT 1) AS gone),
found AS MATERIALIZED (
    SELECT l.* FROM forebay.change_log l
     WHERE l.xid >= $1::text::xid8 AND l.seq <> ALL ($2::bigint[])
     ORDER BY l.xid, l.seq
     LIMIT $3),
sized AS MATERIALIZED (
    SELECT f.xid, f.seq, sum(f.bytes) OVER (ORDER BY f.xid, f.seq) - f.bytes AS before
      FROM (SELECT f.xid, f.seq, coalesce(octet_length(f.record::text), 0) + coalesce(octet_length(f.old_record::text), 0) AS bytes
              FROM found f) f),
l AS MATERIALIZED (
    SELECT f.* FROM found f JOIN sized s ON s.xid = f.xid AND s.seq = f.seq WHERE s.before < $4::bigint)
SELECT h.horizon::text AS horizon, h.gone::text AS gone,
       (SELECT count(*) FROM found) >= $3 OR (SELECT count(*) FROM found) > (SELECT count(*) FROM l) AS cut,
       l.xid::text AS xid, l.seq + c.n - 1 AS seq, l.at, l.topic, l.op, c.ref, c.workspace_id, l.status, l.record, l.old_record
  FROM h LEFT JOIN (l CROSS JOIN LATERAL unnest(l.refs, l.workspaces) WITH ORDINALITY AS c(ref, workspace_id, n)) ON true
 ORDER BY l.xid, l.seq, c.n
