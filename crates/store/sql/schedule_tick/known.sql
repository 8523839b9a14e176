-- Which of these ticks of a schedule were decided about before.
SELECT t.tick_at FROM forebay.schedule_tick t
WHERE t.schedule_id = $1::uuid AND t.tick_at = ANY ($2::timestamptz[]) AND NOT t.by_hand
