-- Folds an event again whose handling failed: functions/append.sql.
SELECT forebay.fb_event_retry_2($1::bigint) AS folded
