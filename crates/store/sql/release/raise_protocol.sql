-- Raises the protocol, if no older process lives: functions/release.sql.
SELECT forebay_r1.raise_protocol($1::int, $2::int, $3::float8)
