-- Our own worker's jobs whose execution is over or gone: functions/work.sql.
SELECT forebay_r1.reconcile_jobs($1::int)
