-- Due jobs whose binding is gone are no more our own worker's: functions/work.sql.
SELECT forebay_r1.put_aside_unbound_jobs($1::int)
