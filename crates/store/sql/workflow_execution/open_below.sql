-- The open descendants of a root.
SELECT id
FROM forebay.workflow_execution
WHERE root = $1::uuid
  AND depth > 0
  AND completed_at IS NULL
ORDER BY id
LIMIT 20000
