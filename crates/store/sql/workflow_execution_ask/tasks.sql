-- Tasks of a workspace (null: of all) by id, after one: of a queue, of a status, or some by name.
SELECT a.id, a.execution_id, a.node, a.iteration, a.attempt, a.workspace_id, a.queue, a.status, a.input, a.opened_at, a.expires_at,
       a.claim_id, a.worker, a.lease_until, a.claim_lease_s, a.deliveries, a.lost, a.progress, a.outcome, a.output, a.error, a.answered_at
FROM forebay.workflow_execution_ask a
WHERE a.kind = 'TASK'
  AND a.id > $1::uuid
  AND ($2::uuid IS NULL OR a.workspace_id = $2)
  AND ($3::text IS NULL OR a.queue = $3)
  AND ($4::text IS NULL OR a.status = $4)
  AND ($5::uuid[] IS NULL OR a.id = ANY ($5))
ORDER BY a.id
LIMIT $6::bigint
