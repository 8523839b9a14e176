-- Executions whose deadline has passed and that nobody runs: waiting, or parked (those are woken to end themselves). A
-- child is its root's to end.
SELECT id, status, workspace_id
FROM forebay.workflow_execution
WHERE completed_at IS NULL
  AND deadline_at <= statement_timestamp()
  AND owner IS NULL
  AND parent IS NULL
ORDER BY deadline_at
LIMIT 500
