-- Time that is up and leases that were lost: functions/ask.sql.
SELECT what, engine, holder, owner FROM forebay.fb_asks_swept_1($1::int, $2::int, $3::jsonb)
