-- Accepts starts, each answered on its own: functions/enqueue.sql.
SELECT ord, outcome, execution, workspace, stage
FROM fb_enqueue_many_2($1::uuid[], $2::uuid[], $3::uuid[], $4::jsonb[], $5::smallint[], $6::timestamptz[], $7::text[],
    $8::text[], $9::bytea[], $10::jsonb[], $11::text[], $12::uuid[], $13::uuid[], $14::text, $15::int, $16::bigint,
    $17::int, true)
