-- How many tasks wait for a worker, and how many are claimed, counted up to a limit.
SELECT (SELECT count(*)
        FROM (SELECT 1
              FROM forebay.workflow_execution_wait wait
              WHERE wait.status = 'OPEN' AND wait.kind = 'TASK'
              LIMIT $1::bigint) counted) AS open,
       (SELECT count(*)
        FROM (SELECT 1
              FROM forebay.workflow_execution_wait wait
              WHERE wait.status = 'CLAIMED'
              LIMIT $1) counted) AS claimed
