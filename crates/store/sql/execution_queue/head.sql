-- The priorities at which a workspace has ready items; and for each, the ready item that has $2 ready items before it.
-- Those $2 items are the head of that priority. Rank and id are null if there are no more than $2 ready items.
SELECT level.priority::smallint, after_head.rank, after_head.id
  FROM generate_series(1, 5) AS level(priority)
 CROSS JOIN LATERAL (
    SELECT 1 FROM forebay.execution_queue item
     WHERE item.shard = forebay.shard_of($1::uuid)::smallint AND item.workspace_id = $1::uuid
       AND item.stage = forebay.stage_ready() AND item.priority = level.priority
     LIMIT 1) first
  LEFT JOIN LATERAL (
    SELECT item.rank, item.id FROM forebay.execution_queue item
     WHERE item.shard = forebay.shard_of($1::uuid)::smallint AND item.workspace_id = $1::uuid
       AND item.stage = forebay.stage_ready() AND item.priority = level.priority
     ORDER BY item.rank, item.id OFFSET $2::bigint LIMIT 1) after_head ON true
