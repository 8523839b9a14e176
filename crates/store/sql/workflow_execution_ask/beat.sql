-- A claimed task's worker is alive: its lease begins anew. Whoever lost the claim changes no row. Its execution is
-- canceling if somebody wants it to end, or the run that holds it.
UPDATE forebay.workflow_execution_ask a
SET lease_until = clock_timestamp() + make_interval(secs => a.claim_lease_s), progress = coalesce($4::jsonb, a.progress)
WHERE a.id = $1::uuid
  AND ($2::uuid IS NULL OR a.workspace_id = $2)
  AND a.status = 'CLAIMED'
  AND a.claim_id = $3::uuid
RETURNING a.lease_until, EXISTS (
    SELECT 1 FROM forebay.workflow_execution e
     WHERE e.id IN (a.execution_id, a.holder, (SELECT c.root FROM forebay.workflow_execution c WHERE c.id = a.execution_id))
       AND e.cancel_requested_at IS NOT NULL) AS canceling
