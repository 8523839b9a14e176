-- Jobs that ended long ago: functions/work.sql.
SELECT fb_jobs_retire_1($1::float8, $2::int)
