-- How the table differs from its facts: functions/work.sql.
SELECT id, how FROM forebay_r1.differing_jobs()
