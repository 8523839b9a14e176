-- The second look of waits for events: functions/ask.sql.
SELECT forebay_r1.look_again($1::int) AS looked
