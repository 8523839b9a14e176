-- How many runs in slots of these shards have a dead owner, by the rule of `adopt_orphans`; no more than $5 are
-- counted. Hops from owner to owner, so that runs of living owners and parked runs cost nothing.
WITH RECURSIVE owners (id) AS (
    (SELECT e.owner FROM forebay.workflow_execution e WHERE e.engine = $4::text AND e.owner IS NOT NULL ORDER BY e.owner LIMIT 1)
    UNION ALL
    SELECT (SELECT e.owner FROM forebay.workflow_execution e WHERE e.engine = $4::text AND e.owner > o.id ORDER BY e.owner LIMIT 1)
      FROM owners o WHERE o.id IS NOT NULL),
dead_owners AS MATERIALIZED (
    SELECT o.id FROM owners o
     WHERE o.id IS NOT NULL
       AND coalesce((SELECT p.ended_at IS NOT NULL
                         OR ($3::boolean AND p.seen_at < clock_timestamp() - make_interval(secs => $2::float8))
                       FROM forebay.process p WHERE p.id = o.id), $3::boolean))
SELECT count(*) FROM (
    SELECT 1 FROM dead_owners o
      JOIN forebay.workflow_execution e ON e.engine = $4::text AND e.owner = o.id
     WHERE e.status = 'RUNNING' AND e.semantics <= $6::int
       -- A value, not EXISTS: a probe for each of these runs, never a join that begins with every slot.
       AND (SELECT q.stage = forebay.stage_slot() AND q.shard = ANY ($1::smallint[]) FROM forebay.execution_queue q WHERE q.id = e.id)
     LIMIT $5::bigint) orphans
