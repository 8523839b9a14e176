-- The ready item of a workspace that has $2 ready items before it. Those $2 items are the head of the workspace.
-- Returns no row if the workspace has no more than $2 ready items.
SELECT item.rank, item.id FROM forebay.execution_queue item
 WHERE item.shard = forebay.shard_of($1::uuid)::smallint AND item.workspace_id = $1::uuid
   AND item.stage = forebay.stage_ready()
 ORDER BY item.rank, item.id OFFSET $2::bigint LIMIT 1
