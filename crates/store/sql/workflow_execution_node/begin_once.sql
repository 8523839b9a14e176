-- Records that a call that may be made at most once begins now. $6 is the fence that start_attempts.sql returned for
-- this attempt. The run's fence ($2, $3) is that of functions/record.sql. A repeated call with the same fence changes
-- nothing more. No row changes if another process owns the run, or if the attempt was started again since.
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
