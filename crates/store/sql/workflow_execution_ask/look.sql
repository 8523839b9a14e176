-- The second look of waits for events: functions/ask.sql.
SELECT forebay.fb_asks_looked_1($1::int) AS looked
