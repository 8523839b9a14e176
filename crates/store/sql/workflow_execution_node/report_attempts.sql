-- Reports the results of attempts: functions/node.sql.
SELECT held, current, ended, freed
FROM forebay_r1.report_attempts($1::uuid[], $2::uuid[], $3::bigint[], $4::int[], $5::text[], $6::int[], $7::text[],
    $8::int[], $9::bigint[], $10::text[], $11::jsonb[], $12::jsonb[], $13::text[], $14::jsonb[], $15::jsonb[],
    $16::text)
ORDER BY report_at
