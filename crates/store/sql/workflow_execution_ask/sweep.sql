-- Time that is up and leases that were lost: functions/ask.sql.
SELECT what, engine, holder, owner FROM forebay_r1.expire_waits($1::int, $2::int, $3::jsonb)
