-- Makes the table what its facts say: functions/work.sql.
SELECT id, how FROM fb_jobs_rebuild_1()
