-- What follows a cursor ($1, $2) and is finished below $3, which a feed has drained: what one who comes back missed, of one
-- workspace (null: all), some topics, and one row (null: every row). The entry of the cursor itself begins at $8.
SELECT l.xid::text AS xid, l.seq + c.n - 1 AS seq, l.at, l.topic, l.op, c.ref, c.workspace_id, l.status, l.record, l.old_record
  FROM change_log l
 CROSS JOIN LATERAL unnest(l.refs, l.workspaces) WITH ORDINALITY AS c(ref, workspace_id, n)
 WHERE (l.xid, l.seq) >= ($1::text::xid8, $8::bigint)
   AND (l.xid, l.seq + c.n - 1) > ($1::text::xid8, $2::bigint)
   AND l.xid < $3::text::xid8
   AND c.workspace_id IS NOT DISTINCT FROM coalesce($4::uuid, c.workspace_id)
   AND l.topic = ANY ($5)
   AND c.ref = coalesce($6::uuid, c.ref)
 ORDER BY l.xid, l.seq, c.n
 LIMIT $7
