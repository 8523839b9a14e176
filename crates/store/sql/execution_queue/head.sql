-- The end of a workspace's head: its $2-th ready item, none if fewer wait.
SELECT q.rank, q.id FROM forebay.execution_queue q
 WHERE q.shard = forebay.shard_of($1::uuid)::smallint AND q.workspace_id = $1::uuid AND q.stage = forebay.stage_ready()
 ORDER BY q.rank, q.id OFFSET $2::bigint LIMIT 1
