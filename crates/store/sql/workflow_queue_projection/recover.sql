-- Jobs whose worker was not heard of for its lease: functions/work.sql.
SELECT forebay_r1.recover_jobs($1::int)
