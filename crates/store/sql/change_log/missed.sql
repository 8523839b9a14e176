-- A page of the changes that a reconnecting reader missed: after its cursor ($1, $2) and below transaction id $3, up to
-- which a feed has drained the log. Filters: workspace $4 (null: all), topics $5, row $6 (null: every row). Reads at
-- most $7 entries of any workspace, and returns about $9 bytes of rows. An entry may contain several changes, so
-- reading starts with the entry ($1, $8) that contains the cursor. The first row always exists; if nothing matches, it
-- contains no change. `last_xid` and `last_seq` name the last entry read. `cut` means that there may be more entries.
WITH found AS MATERIALIZED (
    SELECT entry.* FROM forebay.change_log entry
     WHERE (entry.xid, entry.seq) >= ($1::text::xid8, $8::bigint) AND entry.xid < $3::text::xid8
     ORDER BY entry.xid, entry.seq
     LIMIT $7),
sized AS MATERIALIZED (
    SELECT entry.xid, entry.seq, sum(entry.bytes) OVER (ORDER BY entry.xid, entry.seq) - entry.bytes AS before
      FROM (SELECT entry.xid, entry.seq,
                   CASE WHEN entry.topic = ANY ($5) AND ($4::uuid IS NULL OR $4 = ANY (entry.workspaces))
                        THEN coalesce(octet_length(entry.record::text), 0)
                             + coalesce(octet_length(entry.old_record::text), 0)
                        ELSE 0 END AS bytes
              FROM found entry) entry),
entries AS MATERIALIZED (
    SELECT entry.*
      FROM found entry
      JOIN sized ON sized.xid = entry.xid AND sized.seq = entry.seq
     WHERE sized.before < $9::bigint),
rows_read AS (
    SELECT (SELECT count(*) FROM found) >= $7 OR (SELECT count(*) FROM found) > count(*) AS cut,
           (array_agg(entries.xid ORDER BY entries.xid DESC, entries.seq DESC))[1] AS xid,
           (array_agg(entries.seq ORDER BY entries.xid DESC, entries.seq DESC))[1] AS seq
      FROM entries)
SELECT rows_read.cut, rows_read.xid::text AS last_xid, rows_read.seq AS last_seq,
       change.xid::text AS xid, change.seq, change.at, change.topic, change.op, change.ref, change.workspace_id,
       change.status, change.record, change.old_record
  FROM rows_read LEFT JOIN (
       SELECT entries.xid, entries.seq + change.place - 1 AS seq, entries.at, entries.topic, entries.op, change.ref,
              change.workspace_id, entries.status, entries.record, entries.old_record
         FROM entries
        CROSS JOIN LATERAL unnest(entries.refs, entries.workspaces) WITH ORDINALITY AS change(ref, workspace_id, place)
        WHERE (entries.xid, entries.seq + change.place - 1) > ($1::text::xid8, $2::bigint)
          AND change.workspace_id IS NOT DISTINCT FROM coalesce($4::uuid, change.workspace_id)
          AND entries.topic = ANY ($5)
          AND change.ref = coalesce($6::uuid, change.ref)) change ON true
 ORDER BY change.xid, change.seq
