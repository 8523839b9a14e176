-- Adds a schedule, with the time of its first tick.
INSERT INTO forebay.schedule (id, workspace_id, workflow_definition_id, cron, timezone, run_at, input, priority,
                              concurrency_key, overlap, catch_up, next_at)
VALUES ($1::uuid, $2::uuid, $3::uuid, $4::text, $5::text, $6::timestamptz, $7::jsonb, $8::smallint, $9::text, $10::text,
        $11::text, $12::timestamptz)
