-- Claims jobs and enqueues their executions in one transaction: functions/jobs.sql.
SELECT id, answer, execution
FROM forebay_r1.start_jobs($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::jsonb[],
    $8::jsonb[], $9::text[], $10::boolean[], $11::text[], $12::text, $13::text, $14::int, $15::bigint, $16::int)
