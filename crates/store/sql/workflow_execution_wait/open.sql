-- Opens a wait, or returns the state of an open or answered one: functions/wait.sql.
SELECT held, status, attempt, expires_in_s, outcome, output, error, answered_by, answered_at
FROM forebay_r1.open_wait($1::uuid, $2::uuid, $3::bigint, $4::uuid, $5::text, $6::int, $7::uuid, $8::int, $9::text,
    $10::text, $11::text, $12::text, $13::float8, $14::jsonb, $15::float8)
