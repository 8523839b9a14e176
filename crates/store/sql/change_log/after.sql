-- A page of what follows a cursor ($1, $2) and is finished below $3, which a feed has drained: what one who comes back
-- missed, of one workspace (null: all), some topics, and one row (null: every row). At most $7 entries are looked at,
-- whosever they are, and about $9 bytes of rows are answered. There is always a first row, without a change if there is
-- none for it; `last` is the last entry looked at, and `cut` says that there may be more. The cursor's own entry begins
-- at $8.
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
looked_at AS (
    SELECT (SELECT count(*) FROM found) >= $7 OR (SELECT count(*) FROM found) > count(*) AS cut,
           (array_agg(entries.xid ORDER BY entries.xid DESC, entries.seq DESC))[1] AS xid,
           (array_agg(entries.seq ORDER BY entries.xid DESC, entries.seq DESC))[1] AS seq
      FROM entries)
SELECT looked_at.cut, looked_at.xid::text AS last_xid, looked_at.seq AS last_seq,
       change.xid::text AS xid, change.seq, change.at, change.topic, change.op, change.ref, change.workspace_id,
       change.status, change.record, change.old_record
  FROM looked_at LEFT JOIN (
       SELECT entries.xid, entries.seq + change.place - 1 AS seq, entries.at, entries.topic, entries.op, change.ref,
              change.workspace_id, entries.status, entries.record, entries.old_record
         FROM entries
        CROSS JOIN LATERAL unnest(entries.refs, entries.workspaces) WITH ORDINALITY AS change(ref, workspace_id, place)
        WHERE (entries.xid, entries.seq + change.place - 1) > ($1::text::xid8, $2::bigint)
          AND change.workspace_id IS NOT DISTINCT FROM coalesce($4::uuid, change.workspace_id)
          AND entries.topic = ANY ($5)
          AND change.ref = coalesce($6::uuid, change.ref)) change ON true
 ORDER BY change.xid, change.seq
