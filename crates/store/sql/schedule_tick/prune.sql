-- Ticks behind the newest $2 go; none comes again, for the schedule has moved on. One whose execution has not ended
-- stays: what overlaps is told by it.
DELETE FROM forebay.schedule_tick t
WHERE t.schedule_id = $1::uuid AND t.status <> 'BUFFERED'
  AND t.tick_at < (SELECT t.tick_at FROM forebay.schedule_tick t WHERE t.schedule_id = $1::uuid ORDER BY t.tick_at DESC OFFSET $2::bigint LIMIT 1)
  AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution e WHERE e.id = t.execution_id AND e.completed_at IS NULL)
