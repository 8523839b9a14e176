-- Executions whose deadline has passed and that nobody runs: waiting, or parked (those are woken to end themselves).
SELECT id, status, workspace_id
FROM workflow_execution
WHERE completed_at IS NULL
  AND deadline_at <= statement_timestamp()
  AND owner IS NULL
ORDER BY deadline_at
LIMIT 500
