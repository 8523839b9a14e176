-- Drops the functions of releases that no process has used for $2 s: functions/release.sql.
SELECT number FROM forebay_r1.drop_unused_releases($1::int, $2::float8) AS dropped(number)
