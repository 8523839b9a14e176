-- Ticks of a schedule before a position, newest first.
SELECT tick.tick_at, tick.by_hand, tick.status, tick.reason, tick.execution_id, tick.decided_at
FROM forebay.schedule_tick tick
WHERE tick.schedule_id = $1::uuid AND (tick.tick_at, tick.by_hand) < ($2::timestamptz, $3::boolean)
ORDER BY tick.tick_at DESC, tick.by_hand DESC
LIMIT $4::bigint
