-- Folds events again (makes their jobs) if the stored error is transient: functions/append.sql.
SELECT forebay_r1.fold_failed_events($1::int)
