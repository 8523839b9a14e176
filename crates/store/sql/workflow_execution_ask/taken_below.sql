-- Asks of a holder's tree that count as seen while their nodes are still RUNNING: what an earlier look may have taken
-- without hearing the reply. Read, not taken, so that it may be repeated.
WITH tree AS (
    SELECT $1::uuid AS id
    UNION
    SELECT child.id FROM forebay.workflow_execution child WHERE child.root = $1::uuid AND child.completed_at IS NULL)
SELECT ask.execution_id AS execution, ask.node, ask.iteration, ask.attempt, ask.status, ask.output, ask.error,
       ask.answered_by, ask.answered_at
FROM tree
JOIN forebay.workflow_execution_node node ON node.execution_id = tree.id AND node.status = 'RUNNING'
JOIN forebay.workflow_execution_ask ask
  ON ask.execution_id = node.execution_id AND ask.node = node.node AND ask.iteration = node.iteration
WHERE ask.holder = $1::uuid
  AND ask.attempt = node.attempt
  AND ask.seen_at IS NOT NULL
  AND ask.status IN ('TAKEN', 'EXPIRED')
ORDER BY coalesce(ask.answered_at, ask.expires_at), ask.execution_id, ask.node, ask.iteration
