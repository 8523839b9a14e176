-- How many runs in slots of these shards have a dead owner, by the rule of `adopt_orphans`; no more than $5 are
-- counted. Hops from owner to owner, so that runs of living owners and parked runs cost nothing.
WITH RECURSIVE owners (id) AS (
    (SELECT execution.owner
       FROM forebay.workflow_execution execution
      WHERE execution.engine = $4::text AND execution.owner IS NOT NULL
      ORDER BY execution.owner
      LIMIT 1)
    UNION ALL
    SELECT (SELECT execution.owner
              FROM forebay.workflow_execution execution
             WHERE execution.engine = $4::text AND execution.owner > owner.id
             ORDER BY execution.owner
             LIMIT 1)
      FROM owners owner WHERE owner.id IS NOT NULL),
dead_owners AS MATERIALIZED (
    SELECT owner.id FROM owners owner
     WHERE owner.id IS NOT NULL
       AND coalesce((SELECT process.ended_at IS NOT NULL
                         OR ($3::boolean AND process.seen_at < clock_timestamp() - make_interval(secs => $2::float8))
                       FROM forebay.process WHERE process.id = owner.id), $3::boolean))
SELECT count(*) FROM (
    SELECT 1 FROM dead_owners owner
      JOIN forebay.workflow_execution execution ON execution.engine = $4::text AND execution.owner = owner.id
     WHERE execution.status = 'RUNNING' AND execution.semantics <= $6::int
       -- A value, not EXISTS: a probe for each of these runs, never a join that begins with every slot.
       AND (SELECT item.stage = forebay.stage_slot() AND item.shard = ANY ($1::smallint[])
              FROM forebay.execution_queue item
             WHERE item.id = execution.id)
     LIMIT $5::bigint) orphans
