-- Ended processes that hold nothing any more, a day after. Only a process that runs what it owns ($1, its engine) is an
-- owner.
DELETE FROM forebay.process p
WHERE p.ended_at < clock_timestamp() - interval '1 day'
  AND NOT EXISTS (SELECT 1 FROM forebay.execution_queue q WHERE q.status = 'CLAIMED' AND q.claimed_by = p.id)
  AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution e WHERE e.engine = $1::text AND e.owner = p.id)
