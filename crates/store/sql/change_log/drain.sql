-- New entries of the change log, oldest first: those from transaction id $1 on whose `seq` is not in $2 (drained
-- before). At most $3 entries and about $4 bytes of rows. Also returns `horizon`: every transaction below it has ended.
-- One statement has one snapshot for both. If the horizon were read separately, entries that commit in between would be
-- lost. The first row always exists; if nothing is new, it contains no change. `pruned_xid` is null after a crash
-- emptied the log. `cut` means that there may be more entries.
WITH log AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS horizon,
           (SELECT state.pruned_xid FROM forebay.change_log_pruned state LIMIT 1) AS pruned_xid),
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
SELECT log.horizon::text AS horizon, log.pruned_xid::text AS pruned_xid,
       (SELECT count(*) FROM found) >= $3 OR (SELECT count(*) FROM found) > (SELECT count(*) FROM entries) AS cut,
       entries.xid::text AS xid, entries.seq + change.place - 1 AS seq, entries.at, entries.topic, entries.op,
       change.ref, change.workspace_id, entries.status, entries.record, entries.old_record
  FROM log
  LEFT JOIN (entries CROSS JOIN LATERAL
             unnest(entries.refs, entries.workspaces) WITH ORDINALITY AS change(ref, workspace_id, place)) ON true
 ORDER BY entries.xid, entries.seq, change.place
