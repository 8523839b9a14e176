-- ACTIVE to PAUSED and back, as $3 and $4 say. The tick that is next stays: what was missed is for catch_up to say.
UPDATE forebay.schedule s
SET status = $4::text, updated_at = clock_timestamp()
WHERE s.id = $1::uuid AND ($2::uuid IS NULL OR s.workspace_id = $2) AND s.status = $3::text
RETURNING s.workspace_id
