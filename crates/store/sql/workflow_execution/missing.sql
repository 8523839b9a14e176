-- Which of these executions have no row.
SELECT requested.id FROM unnest($1::uuid[]) AS requested(id)
WHERE NOT EXISTS (SELECT 1 FROM forebay.workflow_execution execution WHERE execution.id = requested.id)
