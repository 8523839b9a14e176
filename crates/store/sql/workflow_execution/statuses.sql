-- The statuses of some executions.
SELECT id, status FROM forebay.workflow_execution WHERE id = ANY ($1::uuid[])
