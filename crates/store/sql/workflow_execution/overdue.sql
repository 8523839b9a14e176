-- Root executions that no process owns and whose deadline has passed: pending ones, and parked ones, which are woken to
-- end themselves. (A parked run also wakes at its own deadline, which may be earlier than that of its queue item.) A
-- root ends its own descendants.
SELECT execution.id, execution.status, execution.workspace_id
FROM forebay.execution_queue item
JOIN forebay.workflow_execution execution ON execution.id = item.id
WHERE item.owner IS NULL
  AND item.stage < forebay.stage_failed()
  AND item.deadline_at <= statement_timestamp()
  AND execution.completed_at IS NULL
  AND execution.owner IS NULL
ORDER BY item.deadline_at
LIMIT 500
