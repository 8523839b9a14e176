-- Runs in slots that name this process as owner: compared with those it holds, so that a lost answer
-- leaves no run behind.
SELECT execution.id, execution.owner_epoch
FROM forebay.workflow_execution execution
WHERE execution.engine = $2::text
  AND execution.owner = $1::uuid
  AND execution.status = 'RUNNING'
  -- A value, not EXISTS: a probe for each of these runs.
  AND (SELECT item.stage = forebay.stage_slot() FROM forebay.execution_queue item WHERE item.id = execution.id)
