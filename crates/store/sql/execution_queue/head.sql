-- The end of a workspace's head: its $2-th ready item, none if fewer wait.
SELECT item.rank, item.id FROM forebay.execution_queue item
 WHERE item.shard = forebay.shard_of($1::uuid)::smallint AND item.workspace_id = $1::uuid
   AND item.stage = forebay.stage_ready()
 ORDER BY item.rank, item.id OFFSET $2::bigint LIMIT 1
