-- Makes failed jobs pending again whose backoff is over: functions/jobs.sql.
SELECT forebay_r1.retry_jobs($1::float8[], $2::int)
