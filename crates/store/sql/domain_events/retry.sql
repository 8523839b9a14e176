-- Folds an event again (makes its job) if its fold failed: functions/append.sql.
SELECT forebay_r1.fold_event($1::bigint) AS folded
