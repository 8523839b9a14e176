-- Failed jobs whose wait is over: functions/work.sql.
SELECT fb_jobs_retry_1($1::float8[], $2::int)
