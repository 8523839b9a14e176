-- Tells what became of an attempt: functions/node.sql.
SELECT held, current
FROM fb_tell_1($1::uuid, $2::uuid, $3::bigint, $4::text, $5::int, $6::text, $7::int, $8::bigint, $9::text, $10::jsonb,
    $11::jsonb, $12::text)
