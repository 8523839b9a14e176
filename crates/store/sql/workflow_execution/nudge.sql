-- Wakes a tree because something below its root changed: whoever owns it looks, and a parked one gets an owner.
UPDATE forebay.workflow_execution
SET wake_at = clock_timestamp()
WHERE id = $1::uuid
  AND status = 'RUNNING'
RETURNING owner
