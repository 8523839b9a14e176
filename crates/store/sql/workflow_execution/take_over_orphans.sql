-- Takes over runs with a slot in these shards whose owner is dead: the caller becomes their owner, with a higher
-- `owner_epoch`. A process is dead if it has ended. It is also dead if it has been silent for $3 s and the caller's own
-- heartbeats were steady ($4). The caller reads the rows of a run in a later statement. At that time this statement has
-- fenced the previous owner, so the rows no longer change. Skips through the index from owner to owner, so that runs of
-- living owners and parked runs cost nothing.
WITH RECURSIVE owners (id) AS (
    (SELECT item.owner
       FROM forebay.execution_queue item
      WHERE item.stage = forebay.stage_slot() AND item.owner IS NOT NULL
      ORDER BY item.owner
      LIMIT 1)
    UNION ALL
    SELECT (SELECT item.owner
              FROM forebay.execution_queue item
             WHERE item.stage = forebay.stage_slot() AND item.owner > owner.id
             ORDER BY item.owner
             LIMIT 1)
      FROM owners owner WHERE owner.id IS NOT NULL),
dead_owners AS MATERIALIZED (
    SELECT owner.id FROM owners owner
     WHERE owner.id IS NOT NULL
       AND coalesce((SELECT process.ended_at IS NOT NULL
                         OR ($4::boolean
                             AND process.heartbeat_at < clock_timestamp() - make_interval(secs => $3::float8))
                       FROM forebay.process WHERE process.id = owner.id), $4::boolean)),
orphans AS MATERIALIZED (
    SELECT execution.id, execution.owner AS was FROM dead_owners owner
      JOIN forebay.execution_queue item ON item.stage = forebay.stage_slot() AND item.owner = owner.id
       AND item.shard = ANY ($1::smallint[])
      JOIN forebay.workflow_execution execution ON execution.id = item.id
     WHERE execution.status = 'RUNNING' AND execution.engine = $5::text AND execution.semantics <= $7::int
       -- A subquery, not a join: it is evaluated again, with the new owner, for a row that changed meanwhile. A joined
       -- row is not, and a run that another process has just taken over would look ownerless.
       AND coalesce((SELECT process.ended_at IS NOT NULL
                         OR ($4::boolean
                             AND process.heartbeat_at < clock_timestamp() - make_interval(secs => $3::float8))
                       FROM forebay.process WHERE process.id = execution.owner), $4::boolean)
     ORDER BY execution.id LIMIT $6::bigint FOR UPDATE OF execution SKIP LOCKED)
UPDATE forebay.workflow_execution execution
SET owner = $2::uuid, owner_epoch = owner_epoch + 1
FROM orphans
WHERE execution.id = orphans.id
  AND execution.status = 'RUNNING'
RETURNING execution.id, execution.owner_epoch, execution.last_seq + execution.tree_seq AS last_seq, execution.deaths,
    execution.deaths_seq, execution.alone,
    -- An owner that shut down, or gave its runs up, did not die of them.
    coalesce((SELECT process.died OR process.ended_at IS NULL FROM forebay.process WHERE process.id = orphans.was),
             true) AS dead,
    forebay_r1.set_run_owner(execution.id, $2::uuid)
