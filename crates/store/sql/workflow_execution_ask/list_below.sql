-- The waits of an execution and of all below it, of a workspace (null: any), by execution, node and iteration, after a
-- place. An execution is never older than its parent, so that its own waits come first.
WITH RECURSIVE below AS (
    SELECT e.id FROM forebay.workflow_execution e WHERE e.id = $1::uuid
    UNION ALL
    SELECT c.id FROM below b JOIN forebay.workflow_execution c ON c.parent = b.id
)
SELECT a.execution_id, a.node, a.iteration, a.attempt, a.status, a.event_type, a.match, a.input, a.opened_at, a.expires_at,
       a.answered_by, a.answered_at
FROM below b
JOIN forebay.workflow_execution_ask a ON a.execution_id = b.id
WHERE ($2::uuid IS NULL OR a.workspace_id = $2)
  AND a.kind = 'WAIT'
  AND ($3::uuid IS NULL OR (a.execution_id, a.node, a.iteration) > ($3, $4::text, $5::int))
ORDER BY a.execution_id, a.node, a.iteration
LIMIT $6::bigint
