-- Deletes schedules that ended long ago, a bounded number.
DELETE FROM forebay.schedule
WHERE schedule.id IN (
    SELECT schedule.id FROM forebay.schedule
    WHERE schedule.status = 'ENDED' AND schedule.updated_at < now() - make_interval(secs => $1::float8)
    ORDER BY schedule.updated_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED)
