-- Folds an event again whose handling failed: functions/append.sql.
SELECT forebay_r1.fold_event($1::bigint) AS folded
