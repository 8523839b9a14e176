-- Adds or changes a schedule of a definition, as its published version declares it. A schedule with the same cron
-- expression and time zone keeps its row, and therefore its next tick.
INSERT INTO forebay.schedule (id, workspace_id, workflow_definition_id, by_definition, cron, timezone, input, priority,
                              concurrency_key, overlap, catch_up, next_at)
VALUES ($1::uuid, $2::uuid, $3::uuid, true, $4::text, $5::text, $6::jsonb, $7::smallint, $8::text, $9::text, $10::text,
        $11::timestamptz)
ON CONFLICT (workflow_definition_id, cron, timezone) WHERE by_definition DO UPDATE
SET input = excluded.input, priority = excluded.priority, concurrency_key = excluded.concurrency_key,
    overlap = excluded.overlap, catch_up = excluded.catch_up, revision = schedule.revision + 1,
    updated_at = clock_timestamp()
RETURNING schedule.id
