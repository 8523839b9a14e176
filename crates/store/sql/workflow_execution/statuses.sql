-- How some executions stand.
SELECT id, status FROM forebay.workflow_execution WHERE id = ANY ($1::uuid[])
