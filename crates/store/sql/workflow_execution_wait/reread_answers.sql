-- Waits of a run's tree that are marked as read while their nodes are still `RUNNING`: the reply of the call that read
-- them may have been lost. This statement only reads, so it may be repeated.
WITH tree AS (
    SELECT $1::uuid AS id
    UNION
    SELECT child.id
      FROM forebay.workflow_execution child
     WHERE child.root = $1::uuid AND child.depth > 0 AND child.completed_at IS NULL)
SELECT wait.execution_id AS execution, wait.node, wait.iteration, wait.attempt, wait.status, wait.output, wait.error,
       wait.answered_by, wait.answered_at
FROM tree
JOIN forebay.workflow_execution_node node ON node.execution_id = tree.id AND node.status = 'RUNNING'
JOIN forebay.workflow_execution_wait wait
  ON wait.execution_id = node.execution_id AND wait.node = node.node AND wait.iteration = node.iteration
WHERE wait.holder = $1::uuid
  AND wait.attempt = node.attempt
  AND wait.read_at IS NOT NULL
  AND wait.status IN ('RECEIVED', 'EXPIRED')
ORDER BY coalesce(wait.answered_at, wait.expires_at), wait.execution_id, wait.node, wait.iteration
