-- Wakes parked runs now.
UPDATE forebay.workflow_execution
SET wake_at = clock_timestamp()
WHERE id = ANY ($1::uuid[])
  AND status = 'RUNNING'
  AND owner IS NULL
RETURNING id
