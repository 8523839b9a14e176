-- Runs in slots that name this process as owner: compared with those it holds, so that a lost answer
-- leaves no run behind.
SELECT e.id, e.owner_epoch
FROM execution_queue q
-- LIMIT 1: always a primary-key probe, never a scan.
CROSS JOIN LATERAL (
    SELECT e.id, e.owner_epoch FROM workflow_execution e
     WHERE e.id = q.id AND e.owner = $1::uuid AND e.status = 'RUNNING' LIMIT 1) e
WHERE q.stage = 5
