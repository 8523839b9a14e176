-- Hands out open tasks, each with its claim; the last row says who was served last: functions/task.sql.
SELECT task, claim, place FROM forebay_r1.claim_tasks($1::text[], $2::uuid, $3::uuid, $4::text, $5::int, $6::float8)
