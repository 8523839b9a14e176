-- Makes parked runs due now: the next process that wakes due runs gets them.
WITH parked AS MATERIALIZED (
    SELECT id
    FROM forebay.workflow_execution
    WHERE id = ANY ($1::uuid[])
      AND status = 'RUNNING'
      AND owner IS NULL
    ORDER BY id
    FOR UPDATE)
SELECT id, forebay_r1.wake_run(id)
FROM parked
