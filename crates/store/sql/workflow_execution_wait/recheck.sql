-- The second check of waits for events: functions/wait.sql.
SELECT forebay_r1.recheck_events($1::int) AS rechecked
