-- Accepts an execution that reruns another and keeps some of its nodes: functions/rerun.sql.
SELECT ord, outcome, execution, workspace, stage
FROM forebay_r1.rerun($1::uuid, $2::uuid, $3::uuid, $4::jsonb, $5::smallint, $6::text, $7::text, $8::bytea, $9::jsonb,
    $10::text, $11::uuid, $12::uuid, $13::text[], $14::text, $15::int, $16::bigint, $17::int, $18::text[], $19::text[])
