-- Collects the results of a loop's iterations: functions/collect.sql.
SELECT held, large, output
FROM forebay_r1.collect_iterations($1::uuid, $2::uuid, $3::bigint, $4::uuid, $5::text, $6::boolean, $7::bigint,
    $8::text)
