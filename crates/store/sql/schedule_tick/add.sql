-- What became of a tick. One that was there already is not changed, unless it waited for its turn.
INSERT INTO forebay.schedule_tick AS tick (schedule_id, tick_at, by_hand, status, reason, execution_id)
VALUES ($1::uuid, $2::timestamptz, $3::boolean, $4::text, $5::text, $6::uuid)
ON CONFLICT (schedule_id, tick_at, by_hand) DO UPDATE
SET status = excluded.status, reason = excluded.reason, execution_id = excluded.execution_id,
    decided_at = excluded.decided_at
WHERE tick.status = 'BUFFERED'
