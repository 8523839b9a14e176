-- Accepts starts, each answered on its own: functions/enqueue.sql.
SELECT ord, outcome, execution, workspace, stage
FROM fb_enqueue_many_1($1::uuid[], $2::uuid[], $3::uuid[], $4::jsonb[], $5::smallint[], $6::timestamptz[], $7::text[],
    $8::text[], $9::bytea[], $10::jsonb[], $11::text[], $12::text, $13::int, $14::bigint)
