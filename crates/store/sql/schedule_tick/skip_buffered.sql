-- Skips a buffered tick. This is a separate statement after the one that locks the schedule, so that it sees what the
-- previous holder of the lock wrote.
UPDATE forebay.schedule_tick tick
SET status = 'SKIPPED', reason = $2::text, decided_at = clock_timestamp()
WHERE tick.schedule_id = $1::uuid AND tick.status = 'BUFFERED'
