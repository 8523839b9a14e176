-- Folds again events whose stored error is transient: functions/event.sql.
SELECT fb_events_fold_1($1::int)
