-- A tick that waited for its turn has none. A statement of its own, after its schedule is locked: it must see what
-- whoever held the lock before has written.
UPDATE forebay.schedule_tick tick
SET status = 'SKIPPED', reason = $2::text, decided_at = clock_timestamp()
WHERE tick.schedule_id = $1::uuid AND tick.status = 'BUFFERED'
