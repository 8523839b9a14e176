-- Tasks by id, after $1. Optional filters: workspace $2, queue $3, status $4, ids $5.
SELECT wait.id, wait.execution_id, wait.node, wait.iteration, wait.attempt, wait.workspace_id, wait.queue, wait.status,
       wait.input, wait.opened_at, wait.expires_at, wait.claim_id, wait.worker, wait.lease_until, wait.claim_lease_s,
       wait.deliveries, wait.lost, wait.progress, wait.outcome, wait.output, wait.error, wait.answered_at
FROM forebay.workflow_execution_wait wait
WHERE wait.kind = 'TASK'
  AND wait.id > $1::uuid
  AND ($2::uuid IS NULL OR wait.workspace_id = $2)
  AND ($3::text IS NULL OR wait.queue = $3)
  AND ($4::text IS NULL OR wait.status = $4)
  AND ($5::uuid[] IS NULL OR wait.id = ANY ($5))
ORDER BY wait.id
LIMIT $6::bigint
