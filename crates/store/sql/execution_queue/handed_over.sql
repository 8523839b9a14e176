-- Items of some shards that were handed to an engine more than $2 s ago and still hold their slot, in
-- order from $3 on: what the engine should know of. One that has not begun notes no engine yet.
SELECT q.id, q.workspace_id, e.status, e.engine_where, e.canceling
FROM forebay.execution_queue q
-- LIMIT 1: always a primary-key probe, never a scan.
CROSS JOIN LATERAL (
    SELECT e.status, e.engine, e.engine_where, e.cancel_requested_at IS NOT NULL AS canceling
      FROM forebay.workflow_execution e WHERE e.id = q.id LIMIT 1) e
-- + 0: slots are read in the order of their ids, so that a page reads no more than it returns and what other shards
-- have in between.
WHERE (q.shard + 0)::smallint = ANY ($1::smallint[])
  AND q.stage = forebay.stage_slot()
  AND q.status = 'DISPATCHED'
  AND q.dispatched_at < clock_timestamp() - make_interval(secs => $2::float8)
  AND q.id > $3::uuid
  AND coalesce(e.engine, $4::text) = $4::text
ORDER BY q.id
LIMIT $5::bigint
