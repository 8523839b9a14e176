-- Withdraws what begin_once.sql recorded, because the call was not sent. Raises the fence, so that a late
-- begin_once.sql with the old fence changes nothing. No row changes if another process owns the run, if the attempt was
-- started again since, or if this was already done.
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
