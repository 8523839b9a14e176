-- Extends the claim of a worker that uses the API: functions/jobs.sql.
SELECT answer, lease_until FROM forebay_r1.heartbeat_job($1::uuid, $2::uuid, $3::uuid, $4::int, $5::text, $6::text)
