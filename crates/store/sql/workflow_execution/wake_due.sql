-- Wakes parked runs that are due: this process becomes their owner, with a higher `owner_epoch`.
WITH due_runs AS MATERIALIZED (
    SELECT execution.id FROM forebay.run_request request
      JOIN forebay.workflow_execution execution ON execution.id = request.execution_id
     WHERE request.engine = $3::text AND request.wake_at <= statement_timestamp() AND request.owner IS NULL
       AND execution.owner IS NULL AND execution.status = 'RUNNING'
       AND execution.engine = $3::text AND execution.semantics <= $4::int
     ORDER BY request.wake_at LIMIT $2::bigint FOR UPDATE OF execution SKIP LOCKED)
UPDATE forebay.workflow_execution execution
SET owner = $1::uuid, owner_epoch = owner_epoch + 1
FROM due_runs
WHERE execution.id = due_runs.id
  AND execution.owner IS NULL
  AND execution.status = 'RUNNING'
RETURNING execution.id, execution.owner_epoch, forebay_r1.set_run_owner(execution.id, $1::uuid)
