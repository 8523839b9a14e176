-- ACTIVE -> PAUSED, or back: $3 is the current status, $4 the new one. `next_at` stays unchanged. So `catch_up` decides
-- about the ticks that were missed during the pause.
UPDATE forebay.schedule
SET status = $4::text, updated_at = clock_timestamp()
WHERE schedule.id = $1::uuid AND ($2::uuid IS NULL OR schedule.workspace_id = $2) AND schedule.status = $3::text
RETURNING schedule.workspace_id
