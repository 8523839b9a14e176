-- Schedules of a deleted definition end; a tick that waited for its turn is told why it has none.
WITH s AS (
    UPDATE forebay.schedule s
    SET status = 'ENDED', reason = $2::text, next_at = NULL, buffered_at = NULL, updated_at = clock_timestamp()
    WHERE s.workflow_definition_id = $1::uuid AND s.status <> 'ENDED'
    RETURNING s.id)
UPDATE forebay.schedule_tick t
SET status = 'SKIPPED', reason = $2::text, decided_at = clock_timestamp()
FROM s
WHERE t.schedule_id = s.id AND t.status = 'BUFFERED'
