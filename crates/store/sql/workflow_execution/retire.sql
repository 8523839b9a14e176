-- Deletes executions that ended long ago: functions/retire.sql.
SELECT slice.next, slice.retired
FROM forebay_r1.retire_executions($1::float8, $2::float8, $3::uuid, $4::int, $5::int) slice
