-- Ticks of a schedule before a place, newest first.
SELECT t.tick_at, t.by_hand, t.status, t.reason, t.execution_id, t.decided_at
FROM forebay.schedule_tick t
WHERE t.schedule_id = $1::uuid AND (t.tick_at, t.by_hand) < ($2::timestamptz, $3::boolean)
ORDER BY t.tick_at DESC, t.by_hand DESC
LIMIT $4::bigint
