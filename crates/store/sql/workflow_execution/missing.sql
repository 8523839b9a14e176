-- Which of these executions have no row.
SELECT asked.id FROM unnest($1::uuid[]) AS asked(id)
WHERE NOT EXISTS (SELECT 1 FROM forebay.workflow_execution execution WHERE execution.id = asked.id)
