-- Ended processes that hold nothing any more, a day after. Only a process that runs what it owns ($1, its engine) is an
-- owner.
DELETE FROM forebay.process
WHERE process.ended_at < clock_timestamp() - interval '1 day'
  AND NOT EXISTS (SELECT 1
                  FROM forebay.execution_queue item
                  WHERE item.status = 'CLAIMED' AND item.claimed_by = process.id)
  AND NOT EXISTS (SELECT 1
                  FROM forebay.workflow_execution execution
                  WHERE execution.engine = $1::text AND execution.owner = process.id)
