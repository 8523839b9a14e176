-- Records what runs of this process did, for many runs in one commit: functions/record.sql.
SELECT run, held, ended, workspace, freed
FROM forebay_r1.record($1::uuid, $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[],
    $6::int[], $7::text[], $8::int[], $9::text[], $10::int[], $11::bigint[], $12::text[], $13::jsonb[], $14::jsonb[],
    $15::jsonb[], $16::boolean[], $17::int[], $18::int[], $19::text[], $20::jsonb[], $21::jsonb[], $22::text)
ORDER BY run
