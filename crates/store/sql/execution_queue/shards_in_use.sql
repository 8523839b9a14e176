-- Of these shards, those with something for a pass that unblocks items: an item that waits or holds a slot, or a
-- deleted definition whose ready items may not have been moved yet. In most passes of a quiet service there are none,
-- and this is its only statement. The array is read in a subquery for the reason given in sweep.sql.
SELECT asked.shard
FROM unnest((SELECT $1::smallint[])) AS asked (shard)
WHERE EXISTS (SELECT FROM forebay.execution_queue item
               WHERE item.shard = asked.shard AND item.stage = forebay.stage_ready())
   OR EXISTS (SELECT FROM forebay.execution_queue item
               WHERE item.shard = asked.shard AND item.claim_number IS NOT NULL)
   OR EXISTS (SELECT FROM forebay.execution_queue item
               WHERE item.shard = asked.shard AND item.stage = forebay.stage_delayed())
   OR EXISTS (SELECT FROM forebay.execution_queue item
               WHERE item.shard = asked.shard AND item.stage = forebay.stage_waits_for_key())
   OR EXISTS (SELECT FROM forebay.execution_queue item
               WHERE item.shard = asked.shard AND item.stage = forebay.stage_waits_for_definition())
   OR EXISTS (SELECT FROM forebay.workflow_definition definition
               WHERE definition.deleted_at IS NOT NULL AND definition.cleared_at IS NULL
                 AND forebay.shard_of(definition.workspace_id)::smallint = asked.shard)
ORDER BY asked.shard
