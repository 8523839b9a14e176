-- A schedule to be moved on, if it is still what its start was judged for; one that another has is skipped.
SELECT s.cron, s.timezone, s.run_at, s.input, s.priority, s.concurrency_key, s.overlap, s.catch_up, s.next_at, s.buffered_at,
       clock_timestamp() AS now
FROM forebay.schedule s
WHERE s.id = $1::uuid AND s.revision = $2::int AND s.status = 'ACTIVE'
FOR UPDATE SKIP LOCKED
