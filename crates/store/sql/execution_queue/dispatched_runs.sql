-- Items of some shards that were dispatched to engine $4 more than $2 s ago and still hold their slot, by id after $3.
-- The engine should know them. An execution that has not begun has no engine stored yet; it is returned too.
SELECT item.id, item.workspace_id, execution.status, execution.engine_location, execution.canceling
FROM forebay.execution_queue item
-- LIMIT 1: always a primary-key probe, never a scan.
CROSS JOIN LATERAL (
    SELECT execution.status, execution.engine, execution.engine_location,
           execution.cancel_requested_at IS NOT NULL AS canceling
      FROM forebay.workflow_execution execution WHERE execution.id = item.id LIMIT 1) execution
-- + 0: read slots by id through another index, so that a page reads only what it returns and the rows of other shards
-- in between.
WHERE (item.shard + 0)::smallint = ANY ($1::smallint[])
  AND item.stage = forebay.stage_slot()
  AND item.status = 'DISPATCHED'
  AND item.dispatched_at < clock_timestamp() - make_interval(secs => $2::float8)
  AND item.id > $3::uuid
  AND coalesce(execution.engine, $4::text) = $4::text
ORDER BY item.id
LIMIT $5::bigint
