-- Runs in slots that name this process as owner: compared with those it holds, so that a lost answer
-- leaves no run behind.
SELECT e.id, e.owner_epoch
FROM forebay.workflow_execution e
WHERE e.engine = $2::text
  AND e.owner = $1::uuid
  AND e.status = 'RUNNING'
  -- A value, not EXISTS: a probe for each of these runs.
  AND (SELECT q.stage = forebay.stage_slot() FROM forebay.execution_queue q WHERE q.id = e.id)
