-- A worker of the API is heard of: functions/work.sql.
SELECT answer, lease_until FROM forebay_r1.heartbeat_job($1::uuid, $2::uuid, $3::uuid, $4::int, $5::text, $6::text)
