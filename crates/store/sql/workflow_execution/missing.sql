-- Which of these executions have no row.
SELECT t.id FROM unnest($1::uuid[]) AS t(id)
WHERE NOT EXISTS (SELECT 1 FROM forebay.workflow_execution e WHERE e.id = t.id)
