-- Runs in slots of these shards whose owner is dead: a new owner, epoch + 1. $3 silent for so long is dead,
-- if the caller's own heartbeats were steady ($4); a process that ended is dead at once. The rows
-- that a run left are read in a later statement, after this one has fenced its last owner.
-- Hops from owner to owner, so that runs of living owners and parked runs cost nothing.
WITH RECURSIVE owners (id) AS (
    (SELECT e.owner FROM forebay.workflow_execution e WHERE e.engine = $5::text AND e.owner IS NOT NULL ORDER BY e.owner LIMIT 1)
    UNION ALL
    SELECT (SELECT e.owner FROM forebay.workflow_execution e WHERE e.engine = $5::text AND e.owner > o.id ORDER BY e.owner LIMIT 1)
      FROM owners o WHERE o.id IS NOT NULL),
dead_owners AS MATERIALIZED (
    SELECT o.id FROM owners o
     WHERE o.id IS NOT NULL
       AND coalesce((SELECT p.ended_at IS NOT NULL
                         OR ($4::boolean AND p.seen_at < clock_timestamp() - make_interval(secs => $3::float8))
                       FROM forebay.process p WHERE p.id = o.id), $4::boolean)),
s AS MATERIALIZED (
    SELECT e.id, e.owner AS was FROM dead_owners o
      JOIN forebay.workflow_execution e ON e.engine = $5::text AND e.owner = o.id
     WHERE e.status = 'RUNNING' AND e.semantics <= $7::int
       -- A value, not EXISTS: a probe for each of these runs, never a join that begins with every slot.
       AND (SELECT q.stage = forebay.stage_slot() AND q.shard = ANY ($1::smallint[]) FROM forebay.execution_queue q WHERE q.id = e.id)
       -- A subquery, not a join: for a row that changed meanwhile it is asked again, of the new owner.
       -- A joined row is not, and a run that another has just adopted would look ownerless.
       AND coalesce((SELECT p.ended_at IS NOT NULL
                         OR ($4::boolean AND p.seen_at < clock_timestamp() - make_interval(secs => $3::float8))
                       FROM forebay.process p WHERE p.id = e.owner), $4::boolean)
     ORDER BY e.id LIMIT $6::bigint FOR UPDATE OF e SKIP LOCKED)
UPDATE forebay.workflow_execution e
SET owner = $2::uuid, owner_epoch = owner_epoch + 1, wake_at = NULL
FROM s
WHERE e.id = s.id
  AND e.status = 'RUNNING'
RETURNING e.id, e.owner_epoch, e.last_seq + e.tree_seq AS last_seq, e.deaths, e.deaths_seq, e.alone,
    -- One that said goodbye, or gave its runs up itself, did not die of them.
    coalesce((SELECT p.died OR p.ended_at IS NULL FROM forebay.process p WHERE p.id = s.was), true) AS dead
