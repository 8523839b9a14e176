-- Notes that a call which may be made at most once begins now, under the fence of its taking. The run's fence is that
-- of functions/record.sql. Repeated under the same fence it changes nothing; no row: the run is another's, or the
-- attempt was overtaken.
WITH held AS (
    SELECT execution.id FROM forebay.workflow_execution execution
     WHERE execution.id = $1::uuid AND execution.owner = $2::uuid AND execution.owner_epoch = $3::bigint
       AND execution.status = 'RUNNING' FOR UPDATE)
UPDATE forebay.workflow_execution_node node
SET once = true
FROM held
WHERE node.execution_id = held.id
  AND node.node = $4::text
  AND node.iteration = $5::int
  AND node.fence = $6::int
  AND node.status = 'RUNNING'
