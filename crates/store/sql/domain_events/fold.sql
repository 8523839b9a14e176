-- Folds again events whose stored error is transient: functions/append.sql.
SELECT forebay.fb_events_fold_1($1::int)
