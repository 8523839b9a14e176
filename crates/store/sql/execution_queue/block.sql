-- Moves ready items of a paused, limited or deleted definition out of the ready stage, at most 1000 per call. Otherwise
-- every claim would read past the backlog of that definition. Nothing moves once the definition is active and unlimited
-- again. Moves only items of priority $7 with a position (rank, id) before ($3, $4) and not before ($5, $6). A moved
-- item has its own rank again; what is returned is the position that it had.
--
-- Items are moved from the last to the first. A moved item leaves a dead entry in the ready index until a vacuum, and a
-- claim reads that index from its head. If items were moved from the head, every claim of the shard would read past
-- their dead entries. When they are moved from the end, a claim reads no dead entry, and no row that this statement has
-- locked.
WITH chosen AS MATERIALIZED (
    SELECT item.id, item.rank FROM forebay.execution_queue item
     WHERE item.shard = forebay.shard_of($1::uuid)::smallint AND item.workspace_id = $1::uuid
       AND item.stage = forebay.stage_ready() AND item.priority = $7::smallint
       AND item.workflow_definition_id = $2::uuid
       AND (item.rank, item.id) < ($3::bigint, $4::uuid) AND (item.rank, item.id) >= ($5::bigint, $6::uuid)
       AND EXISTS (SELECT 1 FROM forebay.workflow_definition definition WHERE definition.id = $2::uuid
                      AND (definition.status <> 'ACTIVE' OR definition.concurrency IS NOT NULL
                           OR definition.deleted_at IS NOT NULL))
     ORDER BY item.rank DESC, item.id DESC LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE forebay.execution_queue item
   SET stage = forebay.stage_waits_for_definition(), limited = true,
       rank = least(item.rank, forebay_r1.own_rank(item.created_at, item.priority))
  FROM chosen
 WHERE item.id = chosen.id AND item.status = 'PENDING'
RETURNING chosen.rank, item.id
