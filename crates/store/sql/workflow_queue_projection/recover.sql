-- Jobs whose worker was not heard of for its lease: functions/work.sql.
SELECT fb_jobs_recover_1($1::int)
