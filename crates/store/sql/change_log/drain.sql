-- What is visible at or above $1 and was not drained before ($2, entries by seq), oldest first, at most $3 entries and
-- about $4 bytes of rows, and below which everything is finished. One statement, one snapshot: with a horizon read
-- apart, what ends in between would be lost. There is always a first row, without a change if nothing is new. `gone` is
-- null after a crash emptied the log. `cut`: there may be more.
WITH log AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS horizon,
           (SELECT kept.gone FROM forebay.change_log_kept kept LIMIT 1) AS gone),
found AS MATERIALIZED (
    SELECT entry.* FROM forebay.change_log entry
     WHERE entry.xid >= $1::text::xid8 AND entry.seq <> ALL ($2::bigint[])
     ORDER BY entry.xid, entry.seq
     LIMIT $3),
sized AS MATERIALIZED (
    SELECT entry.xid, entry.seq, sum(entry.bytes) OVER (ORDER BY entry.xid, entry.seq) - entry.bytes AS before
      FROM (SELECT entry.xid, entry.seq,
                   coalesce(octet_length(entry.record::text), 0)
                   + coalesce(octet_length(entry.old_record::text), 0) AS bytes
              FROM found entry) entry),
entries AS MATERIALIZED (
    SELECT entry.*
      FROM found entry
      JOIN sized ON sized.xid = entry.xid AND sized.seq = entry.seq
     WHERE sized.before < $4::bigint)
SELECT log.horizon::text AS horizon, log.gone::text AS gone,
       (SELECT count(*) FROM found) >= $3 OR (SELECT count(*) FROM found) > (SELECT count(*) FROM entries) AS cut,
       entries.xid::text AS xid, entries.seq + change.place - 1 AS seq, entries.at, entries.topic, entries.op,
       change.ref, change.workspace_id, entries.status, entries.record, entries.old_record
  FROM log
  LEFT JOIN (entries CROSS JOIN LATERAL
             unnest(entries.refs, entries.workspaces) WITH ORDINALITY AS change(ref, workspace_id, place)) ON true
 ORDER BY entries.xid, entries.seq, change.place
