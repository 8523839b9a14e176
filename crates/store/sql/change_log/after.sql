-- A page of what follows a cursor ($1, $2) and is finished below $3, which a feed has drained: what one who comes back missed, of
-- one workspace (null: all), some topics, and one row (null: every row). So many entries are looked at, whosever they are ($7). There is
-- always a first row, without a change if there is none for it, and `last` is the last entry looked at. The cursor's own
-- entry begins at $8.
WITH l AS MATERIALIZED (
    SELECT l.* FROM change_log l
     WHERE (l.xid, l.seq) >= ($1::text::xid8, $8::bigint) AND l.xid < $3::text::xid8
     ORDER BY l.xid, l.seq
     LIMIT $7),
z AS (
    SELECT count(*) AS entries, (array_agg(l.xid ORDER BY l.xid DESC, l.seq DESC))[1] AS xid,
           (array_agg(l.seq ORDER BY l.xid DESC, l.seq DESC))[1] AS seq
      FROM l)
SELECT z.entries, z.xid::text AS last_xid, z.seq AS last_seq,
       c.xid::text AS xid, c.seq, c.at, c.topic, c.op, c.ref, c.workspace_id, c.status, c.record, c.old_record
  FROM z LEFT JOIN (
       SELECT l.xid, l.seq + c.n - 1 AS seq, l.at, l.topic, l.op, c.ref, c.workspace_id, l.status, l.record, l.old_record
         FROM l CROSS JOIN LATERAL unnest(l.refs, l.workspaces) WITH ORDINALITY AS c(ref, workspace_id, n)
        WHERE (l.xid, l.seq + c.n - 1) > ($1::text::xid8, $2::bigint)
          AND c.workspace_id IS NOT DISTINCT FROM coalesce($4::uuid, c.workspace_id)
          AND l.topic = ANY ($5)
          AND c.ref = coalesce($6::uuid, c.ref)) c ON true
 ORDER BY c.xid, c.seq
