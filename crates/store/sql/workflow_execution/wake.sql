-- Parked runs whose time has come: an owner, epoch + 1.
WITH ripe AS MATERIALIZED (
    SELECT execution.id FROM forebay.workflow_execution execution
     WHERE execution.wake_at IS NOT NULL AND execution.wake_at <= statement_timestamp() AND execution.owner IS NULL
       AND execution.status = 'RUNNING'
       AND execution.engine = $3::text AND execution.semantics <= $4::int
     ORDER BY execution.wake_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED)
UPDATE forebay.workflow_execution execution
SET owner = $1::uuid, owner_epoch = owner_epoch + 1, wake_at = NULL
FROM ripe
WHERE execution.id = ripe.id
  AND execution.owner IS NULL
  AND execution.status = 'RUNNING'
RETURNING execution.id, execution.owner_epoch
