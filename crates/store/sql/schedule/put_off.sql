-- A schedule in trouble is looked at again after as long as it has been due, 5 seconds to 10 minutes: it keeps no other
-- from its ticks. Not if another has moved it on, or changed it.
UPDATE forebay.schedule s
SET retry_at = now() + least(greatest(now() - s.next_at, interval '5 seconds'), interval '10 minutes')
WHERE s.id = $1::uuid AND s.revision = $2::int AND s.status = 'ACTIVE' AND (s.next_at <= now() OR s.buffered_at IS NOT NULL)
