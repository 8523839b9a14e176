-- Locks a schedule to fire it, if it is still at revision $2, whose input was checked. Returns no row if it changed, or
-- if another transaction has locked it.
SELECT schedule.cron, schedule.timezone, schedule.run_at, schedule.input, schedule.priority, schedule.concurrency_key,
       schedule.overlap, schedule.catch_up, schedule.next_at, schedule.buffered_at, clock_timestamp() AS now
FROM forebay.schedule
WHERE schedule.id = $1::uuid AND schedule.revision = $2::int AND schedule.status = 'ACTIVE'
FOR UPDATE SKIP LOCKED
