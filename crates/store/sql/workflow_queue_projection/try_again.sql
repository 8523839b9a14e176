-- Failed jobs whose wait is over: functions/work.sql.
SELECT forebay_r1.retry_jobs($1::float8[], $2::int)
