-- Makes jobs pending again whose worker was silent until its lease expired: functions/jobs.sql.
SELECT forebay_r1.recover_jobs($1::int)
