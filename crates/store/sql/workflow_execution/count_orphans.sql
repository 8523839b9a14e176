-- Counts runs with a slot in these shards whose owner is dead, by the rule of `take_over_orphans`, up to $5. Skips
-- through the index from owner to owner, so that runs of living owners and parked runs cost nothing.
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
                         OR ($3::boolean
                             AND process.heartbeat_at < clock_timestamp() - make_interval(secs => $2::float8))
                       FROM forebay.process WHERE process.id = owner.id), $3::boolean))
SELECT count(*) FROM (
    SELECT 1 FROM dead_owners owner
      JOIN forebay.execution_queue item ON item.stage = forebay.stage_slot() AND item.owner = owner.id
       AND item.shard = ANY ($1::smallint[])
      JOIN forebay.workflow_execution execution ON execution.id = item.id
     WHERE execution.status = 'RUNNING' AND execution.engine = $4::text AND execution.semantics <= $6::int
     LIMIT $5::bigint) orphans
