-- Runs with a slot whose owner is this process. The process compares them with the runs in its memory. So it finds a
-- run even if the reply that made it the owner was lost.
SELECT execution.id, execution.owner_epoch
FROM forebay.execution_queue item
JOIN forebay.workflow_execution execution ON execution.id = item.id
WHERE item.stage = forebay.stage_slot()
  AND item.owner = $1::uuid
  AND execution.owner = $1::uuid
  AND execution.engine = $2::text
  AND execution.status = 'RUNNING'
