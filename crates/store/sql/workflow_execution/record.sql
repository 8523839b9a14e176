-- What runs of this process did, many in one commit: functions/record.sql.
SELECT run, held, ended, workspace, freed
FROM fb_record_3($1::uuid, $2::uuid[], $3::bigint[], $4::boolean[],
    $5::int[], $6::text[], $7::int[], $8::text[], $9::int[], $10::bigint[], $11::text[], $12::jsonb[], $13::jsonb[], $14::jsonb[],
    $15::int[], $16::int[], $17::text[], $18::jsonb[], $19::jsonb[], $20::text)
ORDER BY run
