-- A worker of the API ends its job: functions/work.sql.
SELECT forebay.fb_job_end_1($1::uuid, $2::uuid, $3::uuid, $4::jsonb, $5::text, $6::text) AS answer
