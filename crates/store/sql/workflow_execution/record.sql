-- What runs of this process did, many in one commit: functions/record.sql.
SELECT run, held, ended, workspace, freed
FROM fb_record_2($1::uuid, $2::uuid[], $3::bigint[], $4::boolean[],
    $5::int[], $6::text[], $7::int[], $8::text[], $9::int[], $10::bigint[], $11::text[], $12::jsonb[], $13::jsonb[], $14::jsonb[],
    $15::int[], $16::text[], $17::jsonb[], $18::jsonb[], $19::text)
ORDER BY run
