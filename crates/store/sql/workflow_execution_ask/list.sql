-- The waits of an execution of a workspace (null: any), by node and iteration, after a place.
SELECT a.execution_id, a.node, a.iteration, a.kind, a.attempt, a.status, a.event_type, a.match, a.queue, a.input, a.opened_at, a.expires_at,
       a.outcome, a.answered_by, a.answered_at
FROM forebay.workflow_execution_ask a
WHERE a.execution_id = $1::uuid
  AND ($2::uuid IS NULL OR a.workspace_id = $2)
  AND a.kind = 'WAIT'
  AND ($3::text IS NULL OR (a.node, a.iteration) > ($3, $4::int))
ORDER BY a.node, a.iteration
LIMIT $5::bigint
