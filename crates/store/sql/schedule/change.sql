-- A schedule as it is to be, from the tick that is next by now; one that had ended begins anew. What is paused stays
-- so. Nothing of what it was waits on (`schedule_tick/drop`).
UPDATE forebay.schedule s
SET cron = $3::text, timezone = $4::text, run_at = $5::timestamptz, input = $6::jsonb, priority = $7::smallint,
    concurrency_key = $8::text, overlap = $9::text, catch_up = $10::text, next_at = $11::timestamptz,
    buffered_at = NULL, retry_at = NULL,
    status = CASE s.status WHEN 'ENDED' THEN 'ACTIVE' ELSE s.status END, reason = NULL, revision = s.revision + 1,
    updated_at = clock_timestamp()
WHERE s.id = $1::uuid AND ($2::uuid IS NULL OR s.workspace_id = $2) AND NOT s.by_definition
RETURNING s.workspace_id
