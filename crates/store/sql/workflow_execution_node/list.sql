-- An execution's nodes as people read them: in the order in which they settled, then the open ones by their start.
SELECT node, iteration, status, attempt, label, input, output, error, earlier, next_at, started_at, completed_at, duration_ms
FROM workflow_execution_node
WHERE execution_id = $1::uuid
ORDER BY seq NULLS LAST, started_at NULLS LAST, node, iteration
LIMIT 10000
