-- Creates the child execution of a node, or finds the existing one: functions/child.sql.
SELECT answer, made, execution, workspace, definition, version, input, trigger, created, deadline_in_ms, inherits,
       trace, canceling, status, output, error, unknown
FROM forebay_r1.create_child($1::uuid, $2::uuid, $3::bigint, $4::uuid, $5::uuid, $6::text, $7::int, $8::int, $9::uuid,
    $10::uuid, $11::jsonb, $12::jsonb, $13::text, $14::bigint, $15::text, $16::boolean, $17::int, $18::int, $19::int)
