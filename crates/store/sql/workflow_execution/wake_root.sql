-- Wakes a tree because something below its root changed. If the root has an owner, the owner reads the changes. If the
-- root is parked, a process resumes it.
WITH running AS MATERIALIZED (
    SELECT id, owner
    FROM forebay.workflow_execution
    WHERE id = $1::uuid
      AND status = 'RUNNING'
    FOR UPDATE)
SELECT owner, forebay_r1.wake_run(id)
FROM running
