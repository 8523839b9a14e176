-- Makes the table what its facts say: functions/work.sql.
SELECT id, how FROM forebay_r1.rebuild_jobs()
