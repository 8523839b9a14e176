-- The open descendants of a root that somebody asked to end. They have no owner of their own, so an index of few rows
-- has them.
SELECT id
FROM forebay.workflow_execution
WHERE owner IS NULL
  AND cancel_requested_at IS NOT NULL
  AND completed_at IS NULL
  AND root = $1::uuid
  AND parent IS NOT NULL
ORDER BY id
LIMIT 20000
