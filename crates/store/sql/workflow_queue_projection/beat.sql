-- A worker of the API is heard of: functions/work.sql.
SELECT answer, lease_until FROM forebay.fb_job_beat_1($1::uuid, $2::uuid, $3::uuid, $4::int, $5::text, $6::text)
