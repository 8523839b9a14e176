-- Runs in slots of these shards whose owner is dead: a new owner, epoch + 1. $3 silent for so long is dead,
-- if the caller's own heartbeats were steady ($4); a process that ended is dead at once. The rows
-- that a run left are read in a later statement, after this one has fenced its last owner.
-- Hops from owner to owner, so that runs of living owners and parked runs cost nothing.
WITH RECURSIVE owners (id) AS (
    (SELECT execution.owner
       FROM forebay.workflow_execution execution
      WHERE execution.engine = $5::text AND execution.owner IS NOT NULL
      ORDER BY execution.owner
      LIMIT 1)
    UNION ALL
    SELECT (SELECT execution.owner
              FROM forebay.workflow_execution execution
             WHERE execution.engine = $5::text AND execution.owner > owner.id
             ORDER BY execution.owner
             LIMIT 1)
      FROM owners owner WHERE owner.id IS NOT NULL),
dead_owners AS MATERIALIZED (
    SELECT owner.id FROM owners owner
     WHERE owner.id IS NOT NULL
       AND coalesce((SELECT process.ended_at IS NOT NULL
                         OR ($4::boolean AND process.seen_at < clock_timestamp() - make_interval(secs => $3::float8))
                       FROM forebay.process WHERE process.id = owner.id), $4::boolean)),
orphans AS MATERIALIZED (
    SELECT execution.id, execution.owner AS was FROM dead_owners owner
      JOIN forebay.workflow_execution execution ON execution.engine = $5::text AND execution.owner = owner.id
     WHERE execution.status = 'RUNNING' AND execution.semantics <= $7::int
       -- A value, not EXISTS: a probe for each of these runs, never a join that begins with every slot.
       AND (SELECT item.stage = forebay.stage_slot() AND item.shard = ANY ($1::smallint[])
              FROM forebay.execution_queue item
             WHERE item.id = execution.id)
       -- A subquery, not a join: for a row that changed meanwhile it is asked again, of the new owner.
       -- A joined row is not, and a run that another has just adopted would look ownerless.
       AND coalesce((SELECT process.ended_at IS NOT NULL
                         OR ($4::boolean AND process.seen_at < clock_timestamp() - make_interval(secs => $3::float8))
                       FROM forebay.process WHERE process.id = execution.owner), $4::boolean)
     ORDER BY execution.id LIMIT $6::bigint FOR UPDATE OF execution SKIP LOCKED)
UPDATE forebay.workflow_execution execution
SET owner = $2::uuid, owner_epoch = owner_epoch + 1, wake_at = NULL
FROM orphans
WHERE execution.id = orphans.id
  AND execution.status = 'RUNNING'
RETURNING execution.id, execution.owner_epoch, execution.last_seq + execution.tree_seq AS last_seq, execution.deaths,
    execution.deaths_seq, execution.alone,
    -- One that said goodbye, or gave its runs up itself, did not die of them.
    coalesce((SELECT process.died OR process.ended_at IS NULL FROM forebay.process WHERE process.id = orphans.was),
             true) AS dead
