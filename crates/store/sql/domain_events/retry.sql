-- Folds an event again whose handling failed: functions/event.sql.
SELECT fb_event_retry_2($1::bigint) AS folded
