-- Jobs whose worker was not heard of for its lease: functions/work.sql.
SELECT forebay.fb_jobs_recover_1($1::int)
