-- How many tasks wait for a worker, and how many one has; so many at most are counted.
SELECT (SELECT count(*) FROM (SELECT 1 FROM forebay.workflow_execution_ask a WHERE a.status = 'OPEN' AND a.kind = 'TASK' LIMIT $1::bigint) o) AS open,
       (SELECT count(*) FROM (SELECT 1 FROM forebay.workflow_execution_ask a WHERE a.status = 'CLAIMED' LIMIT $1) c) AS claimed
