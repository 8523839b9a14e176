-- Records a heartbeat of the worker that claimed a task, and renews the lease. If the claim was lost, no row changes.
-- `canceling`: the cancellation of the task's execution, or of the run that holds the wait, was requested.
UPDATE forebay.workflow_execution_wait wait
SET lease_until = clock_timestamp() + make_interval(secs => wait.claim_lease_s),
    progress = coalesce($4::jsonb, wait.progress)
WHERE wait.id = $1::uuid
  AND ($2::uuid IS NULL OR wait.workspace_id = $2)
  AND wait.status = 'CLAIMED'
  AND wait.claim_id = $3::uuid
RETURNING wait.lease_until, EXISTS (
    SELECT 1 FROM forebay.workflow_execution execution
     WHERE execution.id IN (wait.execution_id, wait.holder,
                            (SELECT own.root FROM forebay.workflow_execution own WHERE own.id = wait.execution_id))
       AND execution.cancel_requested_at IS NOT NULL) AS canceling
