-- Asks a running execution to end; the row is locked, so it is either still running or already told. A child is not
-- woken itself: its root is.
UPDATE forebay.workflow_execution
SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
    wake_at = CASE WHEN parent IS NULL THEN clock_timestamp() END
WHERE id = $1::uuid
  AND workspace_id = $2::uuid
  AND status = 'RUNNING'
RETURNING owner
