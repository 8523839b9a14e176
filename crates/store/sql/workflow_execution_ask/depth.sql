-- How many tasks wait for a worker, and how many one has; so many at most are counted.
SELECT (SELECT count(*)
        FROM (SELECT 1
              FROM forebay.workflow_execution_ask wait
              WHERE wait.status = 'OPEN' AND wait.kind = 'TASK'
              LIMIT $1::bigint) counted) AS open,
       (SELECT count(*)
        FROM (SELECT 1
              FROM forebay.workflow_execution_ask wait
              WHERE wait.status = 'CLAIMED'
              LIMIT $1) counted) AS claimed
