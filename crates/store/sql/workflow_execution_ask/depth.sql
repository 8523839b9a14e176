-- How many tasks wait for a worker, and how many one has, by queue; the 200 that are asked for most.
SELECT a.queue, count(*) FILTER (WHERE a.status = 'OPEN') AS open, count(*) FILTER (WHERE a.status = 'CLAIMED') AS claimed
FROM workflow_execution_ask a
WHERE a.kind = 'TASK'
  AND a.status IN ('OPEN', 'CLAIMED')
GROUP BY a.queue
ORDER BY count(*) DESC, a.queue
LIMIT 200
