-- Tells what became of an attempt: functions/node.sql.
SELECT held, current
FROM forebay_r1.report_node($1::uuid, $2::uuid, $3::bigint, $4::text, $5::int, $6::int, $7::text, $8::int, $9::bigint,
    $10::text, $11::jsonb, $12::jsonb, $13::text)
