-- Ends a task under its claim: functions/task.sql.
SELECT result, engine, holder, owner
FROM forebay_r1.end_task($1::uuid, $2::uuid, $3::uuid, $4::text, $5::jsonb, $6::jsonb)
