-- Runs in slots that name this process as owner: compared with those it holds, so that a lost answer
-- leaves no run behind.
SELECT e.id, e.owner_epoch
FROM execution_queue q JOIN workflow_execution e ON e.id = q.id
WHERE q.stage = 5
  AND e.owner = $1::uuid
  AND e.status = 'RUNNING'
