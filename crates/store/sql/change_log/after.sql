-- What follows a cursor ($1, $2) and is finished below $3, which a feed has drained: what one who comes back missed, of one
-- workspace (null: all), one topic, and one row (null: every row).
SELECT l.xid::text AS xid, l.seq, l.at, l.topic, l.op, l.ref, l.workspace_id, l.record, l.old_record
  FROM change_log l
 WHERE (l.xid, l.seq) > ($1::text::xid8, $2::bigint)
   AND l.xid < $3::text::xid8
   AND l.workspace_id IS NOT DISTINCT FROM coalesce($4::uuid, l.workspace_id)
   AND l.topic = $5
   AND l.ref = coalesce($6::uuid, l.ref)
 ORDER BY l.xid, l.seq
 LIMIT $7
