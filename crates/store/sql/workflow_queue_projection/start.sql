-- Claims jobs and enqueues their executions in one transaction: functions/work.sql.
SELECT id, answer, execution
FROM fb_jobs_start_1($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $5::uuid[], $6::jsonb[], $7::jsonb[], $8::text[], $9::boolean[],
    $10::text[], $11::text, $12::text, $13::int, $14::bigint, $15::int)
