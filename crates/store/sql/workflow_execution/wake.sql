-- Parked runs whose time has come: an owner, epoch + 1.
WITH s AS MATERIALIZED (
    SELECT e.id FROM forebay.workflow_execution e
     WHERE e.wake_at IS NOT NULL AND e.wake_at <= statement_timestamp() AND e.owner IS NULL AND e.status = 'RUNNING'
       AND e.engine = $3::text AND e.semantics <= $4::int
     ORDER BY e.wake_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED)
UPDATE forebay.workflow_execution e
SET owner = $1::uuid, owner_epoch = owner_epoch + 1, wake_at = NULL
FROM s
WHERE e.id = s.id
  AND e.owner IS NULL
  AND e.status = 'RUNNING'
RETURNING e.id, e.owner_epoch
