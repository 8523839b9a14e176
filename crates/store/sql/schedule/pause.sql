-- ACTIVE to PAUSED and back, as $3 and $4 say. The tick that is next stays: what was missed is for catch_up to say.
UPDATE forebay.schedule
SET status = $4::text, updated_at = clock_timestamp()
WHERE schedule.id = $1::uuid AND ($2::uuid IS NULL OR schedule.workspace_id = $2) AND schedule.status = $3::text
RETURNING schedule.workspace_id
