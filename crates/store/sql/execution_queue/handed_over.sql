-- Items of some shards that were handed to an engine more than $2 s ago and still hold their slot, in
-- order from $3 on: what the engine should know of. One that has not begun notes no engine yet.
SELECT item.id, item.workspace_id, execution.status, execution.engine_where, execution.canceling
FROM forebay.execution_queue item
-- LIMIT 1: always a primary-key probe, never a scan.
CROSS JOIN LATERAL (
    SELECT execution.status, execution.engine, execution.engine_where,
           execution.cancel_requested_at IS NOT NULL AS canceling
      FROM forebay.workflow_execution execution WHERE execution.id = item.id LIMIT 1) execution
-- + 0: slots are read in the order of their ids, so that a page reads no more than it returns and what other shards
-- have in between.
WHERE (item.shard + 0)::smallint = ANY ($1::smallint[])
  AND item.stage = forebay.stage_slot()
  AND item.status = 'DISPATCHED'
  AND item.dispatched_at < clock_timestamp() - make_interval(secs => $2::float8)
  AND item.id > $3::uuid
  AND coalesce(execution.engine, $4::text) = $4::text
ORDER BY item.id
LIMIT $5::bigint
