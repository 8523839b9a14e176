-- Stores the result of a tick. An existing row changes only if its status is `BUFFERED`.
INSERT INTO forebay.schedule_tick AS tick (schedule_id, tick_at, by_hand, status, reason, execution_id)
VALUES ($1::uuid, $2::timestamptz, $3::boolean, $4::text, $5::text, $6::uuid)
ON CONFLICT (schedule_id, tick_at, by_hand) DO UPDATE
SET status = excluded.status, reason = excluded.reason, execution_id = excluded.execution_id,
    decided_at = excluded.decided_at
WHERE tick.status = 'BUFFERED'
