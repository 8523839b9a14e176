-- Ends a job for a worker that uses the API: functions/jobs.sql.
SELECT forebay_r1.end_job($1::uuid, $2::uuid, $3::uuid, $4::jsonb, $5::text, $6::text) AS answer
