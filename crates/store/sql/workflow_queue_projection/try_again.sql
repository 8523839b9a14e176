-- Failed jobs whose wait is over: functions/work.sql.
SELECT forebay.fb_jobs_retry_1($1::float8[], $2::int)
