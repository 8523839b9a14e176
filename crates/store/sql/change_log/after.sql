-- A page of what follows a cursor ($1, $2) and is finished below $3, which a feed has drained: what one who comes back
-- missed, of one workspace (null: all), some topics, and one row (null: every row). At most $7 entries are looked at,
-- whosever they are, and about $9 bytes of rows are answered. There is always a first row, without a change if there is
-- none for it; `last` is the last entry looked at, and `cut` says that there may be more. The cursor's own entry begins
-- at $8.
WITH found AS MATERIALIZED (
    SELECT l.* FROM forebay.change_log l
     WHERE (l.xid, l.seq) >= ($1::text::xid8, $8::bigint) AND l.xid < $3::text::xid8
     ORDER BY l.xid, l.seq
     LIMIT $7),
sized AS MATERIALIZED (
    SELECT f.xid, f.seq, sum(f.bytes) OVER (ORDER BY f.xid, f.seq) - f.bytes AS before
      FROM (SELECT f.xid, f.seq, CASE WHEN f.topic = ANY ($5) AND ($4::uuid IS NULL OR $4 = ANY (f.workspaces))
                   THEN coalesce(octet_length(f.record::text), 0) + coalesce(octet_length(f.old_record::text), 0) ELSE 0 END AS bytes
              FROM found f) f),
l AS MATERIALIZED (
    SELECT f.* FROM found f JOIN sized s ON s.xid = f.xid AND s.seq = f.seq WHERE s.before < $9::bigint),
z AS (
    SELECT (SELECT count(*) FROM found) >= $7 OR (SELECT count(*) FROM found) > count(*) AS cut,
           (array_agg(l.xid ORDER BY l.xid DESC, l.seq DESC))[1] AS xid,
           (array_agg(l.seq ORDER BY l.xid DESC, l.seq DESC))[1] AS seq
      FROM l)
SELECT z.cut, z.xid::text AS last_xid, z.seq AS last_seq,
       c.xid::text AS xid, c.seq, c.at, c.topic, c.op, c.ref, c.workspace_id, c.status, c.record, c.old_record
  FROM z LEFT JOIN (
       SELECT l.xid, l.seq + c.n - 1 AS seq, l.at, l.topic, l.op, c.ref, c.workspace_id, l.status, l.record, l.old_record
         FROM l CROSS JOIN LATERAL unnest(l.refs, l.workspaces) WITH ORDINALITY AS c(ref, workspace_id, n)
        WHERE (l.xid, l.seq + c.n - 1) > ($1::text::xid8, $2::bigint)
          AND c.workspace_id IS NOT DISTINCT FROM coalesce($4::uuid, c.workspace_id)
          AND l.topic = ANY ($5)
          AND c.ref = coalesce($6::uuid, c.ref)) c ON true
 ORDER BY c.xid, c.seq
