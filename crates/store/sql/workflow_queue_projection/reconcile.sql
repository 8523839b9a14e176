-- Settles jobs that the projector started and whose execution has ended or is missing: functions/jobs.sql.
SELECT forebay_r1.reconcile_jobs($1::int)
