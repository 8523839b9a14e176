-- Expires waits, and takes tasks back from silent workers: functions/wait.sql.
SELECT kind, engine, holder, owner FROM forebay_r1.expire_waits($1::int, $2::int, $3::jsonb)
