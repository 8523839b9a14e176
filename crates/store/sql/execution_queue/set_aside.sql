-- Moves ready items of a definition that may not start out of the ready index, a bounded number at
-- a time: a paused or lowered definition's backlog must cost the claim nothing. Only while it is
-- still paused, limited or deleted. $3, $4: only before this rank and id; $5, $6: and not before this one.
--
-- From the last to the first: what is moved leaves dead entries in the ready index until a vacuum,
-- and a claim starts at the head. Moved from the head they were a wall that every claim of the shard
-- had to climb; from the end it meets none, nor any row that this statement has locked.
WITH chosen AS MATERIALIZED (
    SELECT item.id FROM forebay.execution_queue item
     WHERE item.shard = forebay.shard_of($1::uuid)::smallint AND item.workspace_id = $1::uuid
       AND item.stage = forebay.stage_ready()
       AND item.workflow_definition_id = $2::uuid
       AND (item.rank, item.id) < ($3::bigint, $4::uuid) AND (item.rank, item.id) >= ($5::bigint, $6::uuid)
       AND EXISTS (SELECT 1 FROM forebay.workflow_definition definition WHERE definition.id = $2::uuid
                      AND (definition.status <> 'ACTIVE' OR definition.concurrency IS NOT NULL
                           OR definition.deleted_at IS NOT NULL))
     ORDER BY item.rank DESC, item.id DESC LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE forebay.execution_queue item
   SET stage = forebay.stage_waits_for_definition(), gated = true
  FROM chosen
 WHERE item.id = chosen.id AND item.status = 'PENDING'
RETURNING item.rank, item.id
