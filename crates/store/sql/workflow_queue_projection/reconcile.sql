-- Our own worker's jobs whose execution is over or gone: functions/work.sql.
SELECT forebay.fb_jobs_reconcile_1($1::int)
