-- Answers a wait: functions/wait.sql.
SELECT result, engine, holder, owner
FROM forebay_r1.answer_wait($1::uuid, $2::text, $3::int, $4::uuid, $5::bytea, $6::jsonb, $7::text, $8::boolean)
