-- Schedules that ended long ago go, a bounded number.
DELETE FROM forebay.schedule s
WHERE s.id IN (SELECT s.id FROM forebay.schedule s
                WHERE s.status = 'ENDED' AND s.updated_at < now() - make_interval(secs => $1::float8)
                ORDER BY s.updated_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED)
