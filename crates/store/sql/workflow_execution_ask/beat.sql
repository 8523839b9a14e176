-- A claimed task's worker is alive: its lease begins anew. Whoever lost the claim changes no row.
UPDATE workflow_execution_ask a
SET lease_until = clock_timestamp() + make_interval(secs => a.claim_lease_s), progress = coalesce($4::jsonb, a.progress)
FROM workflow_execution e
WHERE a.id = $1::uuid
  AND ($2::uuid IS NULL OR a.workspace_id = $2)
  AND a.status = 'CLAIMED'
  AND a.claim_id = $3::uuid
  AND e.id = a.execution_id
RETURNING a.lease_until, e.cancel_requested_at IS NOT NULL AS canceling
