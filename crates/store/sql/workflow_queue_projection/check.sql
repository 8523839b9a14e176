-- How the table differs from its facts: functions/work.sql.
SELECT id, how FROM forebay.fb_jobs_differ_1()
