-- Deletes jobs that ended long ago: functions/retire.sql.
SELECT slice.at, slice.id, slice.retired
FROM forebay_r1.retire_jobs($1::float8, $2::text, coalesce($3::timestamptz, '-infinity'), $4::uuid, $5::int) slice
