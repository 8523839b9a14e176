-- Ended processes that hold nothing any more, a day after.
DELETE FROM process p
WHERE p.ended_at < clock_timestamp() - interval '1 day'
  AND NOT EXISTS (SELECT 1 FROM execution_queue q WHERE q.stage = 5 AND q.claimed_by = p.id)
  AND NOT EXISTS (SELECT 1 FROM execution_queue q JOIN workflow_execution e ON e.id = q.id WHERE q.stage = 5 AND e.owner = p.id)
