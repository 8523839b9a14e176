-- Makes the table what its facts say: functions/work.sql.
SELECT id, how FROM forebay.fb_jobs_rebuild_1()
