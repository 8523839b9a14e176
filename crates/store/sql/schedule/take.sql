-- A schedule to be moved on, if it is still what its start was judged for; one that another has is skipped.
SELECT schedule.cron, schedule.timezone, schedule.run_at, schedule.input, schedule.priority, schedule.concurrency_key,
       schedule.overlap, schedule.catch_up, schedule.next_at, schedule.buffered_at, clock_timestamp() AS now
FROM forebay.schedule
WHERE schedule.id = $1::uuid AND schedule.revision = $2::int AND schedule.status = 'ACTIVE'
FOR UPDATE SKIP LOCKED
