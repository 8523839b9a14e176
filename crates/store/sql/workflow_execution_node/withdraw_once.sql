-- Takes back what begin_once noted: the call was not sent. The fence is raised, so that a note of the same taking that
-- is still on its way to the database changes nothing. No row: the run is another's, the attempt was overtaken, or this
-- was done before.
WITH held AS (
    SELECT execution.id FROM forebay.workflow_execution execution
     WHERE execution.id = $1::uuid AND execution.owner = $2::uuid AND execution.owner_epoch = $3::bigint
       AND execution.status = 'RUNNING' FOR UPDATE)
UPDATE forebay.workflow_execution_node node
SET once = false, fence = node.fence + 1
FROM held
WHERE node.execution_id = held.id
  AND node.node = $4::text
  AND node.iteration = $5::int
  AND node.fence = $6::int
  AND node.status = 'RUNNING'
