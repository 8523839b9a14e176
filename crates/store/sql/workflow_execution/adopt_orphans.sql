-- Runs in slots of a shard whose owner is dead: a new owner, epoch + 1. $3 silent for so long is dead,
-- if the caller's own heartbeats were steady ($4); a process that ended is dead at once. The rows
-- that a run left are read in a later statement, after this one has fenced its last owner.
WITH s AS MATERIALIZED (
    SELECT e.id FROM execution_queue q
      JOIN workflow_execution e ON e.id = q.id
      LEFT JOIN process p ON p.id = e.owner
     WHERE q.shard = $1::smallint AND q.stage = 5 AND e.status = 'RUNNING' AND e.engine = $5::text AND e.owner IS NOT NULL
       AND (p.ended_at IS NOT NULL
            OR ($4::boolean AND (p.id IS NULL OR p.seen_at < clock_timestamp() - make_interval(secs => $3::float8))))
       AND e.semantics <= $7::int
     ORDER BY e.id LIMIT $6::bigint FOR UPDATE OF e SKIP LOCKED)
UPDATE workflow_execution e
SET owner = $2::uuid, owner_epoch = owner_epoch + 1, wake_at = NULL
FROM s
WHERE e.id = s.id
  AND e.status = 'RUNNING'
RETURNING e.id, e.owner_epoch, e.last_seq, e.deaths, e.deaths_seq, e.alone
