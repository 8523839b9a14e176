-- Delays a schedule that failed to fire, so that it does not delay other schedules. The delay is as long as its tick
-- has been due, at least 5 seconds and at most 10 minutes. Nothing changes if another process has advanced or changed
-- the schedule.
UPDATE forebay.schedule
SET retry_at = now() + least(greatest(now() - schedule.next_at, interval '5 seconds'), interval '10 minutes')
WHERE schedule.id = $1::uuid AND schedule.revision = $2::int AND schedule.status = 'ACTIVE'
  AND (schedule.next_at <= now() OR schedule.buffered_at IS NOT NULL)
