-- Which of these ticks of a schedule are already stored.
SELECT tick.tick_at FROM forebay.schedule_tick tick
WHERE tick.schedule_id = $1::uuid AND tick.tick_at = ANY ($2::timestamptz[]) AND NOT tick.by_hand
