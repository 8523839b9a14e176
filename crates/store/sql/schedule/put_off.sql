-- A schedule in trouble is looked at again after as long as it has been due, 5 seconds to 10 minutes: it keeps no other
-- from its ticks. Not if another has moved it on, or changed it.
UPDATE forebay.schedule
SET retry_at = now() + least(greatest(now() - schedule.next_at, interval '5 seconds'), interval '10 minutes')
WHERE schedule.id = $1::uuid AND schedule.revision = $2::int AND schedule.status = 'ACTIVE'
  AND (schedule.next_at <= now() OR schedule.buffered_at IS NOT NULL)
