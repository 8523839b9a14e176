-- Ends the schedules of a deleted definition. Their buffered ticks are skipped with the reason $2.
WITH ended AS (
    UPDATE forebay.schedule
    SET status = 'ENDED', reason = $2::text, next_at = NULL, buffered_at = NULL, updated_at = clock_timestamp()
    WHERE schedule.workflow_definition_id = $1::uuid AND schedule.status <> 'ENDED'
    RETURNING schedule.id)
UPDATE forebay.schedule_tick tick
SET status = 'SKIPPED', reason = $2::text, decided_at = clock_timestamp()
FROM ended
WHERE tick.schedule_id = ended.id AND tick.status = 'BUFFERED'
