-- Changes a schedule. Its next tick is the first one after now. An ended schedule becomes active again; a paused one
-- stays paused. A buffered tick is dropped (`schedule_tick/skip_buffered`). Nothing changes if another request changed
-- the schedule since the caller read revision $12.
UPDATE forebay.schedule
SET cron = $3::text, timezone = $4::text, run_at = $5::timestamptz, input = $6::jsonb, priority = $7::smallint,
    concurrency_key = $8::text, overlap = $9::text, catch_up = $10::text, next_at = $11::timestamptz,
    buffered_at = NULL, retry_at = NULL,
    status = CASE schedule.status WHEN 'ENDED' THEN 'ACTIVE' ELSE schedule.status END, reason = NULL,
    revision = schedule.revision + 1, updated_at = clock_timestamp()
WHERE schedule.id = $1::uuid AND ($2::uuid IS NULL OR schedule.workspace_id = $2) AND NOT schedule.by_definition
  AND schedule.revision = $12::int
RETURNING schedule.workspace_id
