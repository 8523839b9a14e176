-- Due jobs whose binding is gone are no more our own worker's: functions/work.sql.
SELECT forebay.fb_jobs_unbound_1($1::int)
