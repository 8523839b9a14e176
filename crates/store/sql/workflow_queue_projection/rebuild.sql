-- Rebuilds the table of jobs from its facts: functions/jobs.sql.
SELECT id, how FROM forebay_r1.rebuild_jobs()
