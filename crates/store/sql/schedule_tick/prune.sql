-- Ticks behind the newest $2 go; none comes again, for the schedule has moved on. One whose execution has not ended
-- stays: what overlaps is told by it.
DELETE FROM forebay.schedule_tick tick
WHERE tick.schedule_id = $1::uuid AND tick.status <> 'BUFFERED'
  AND tick.tick_at < (SELECT newest.tick_at
                      FROM forebay.schedule_tick newest
                      WHERE newest.schedule_id = $1::uuid
                      ORDER BY newest.tick_at DESC
                      OFFSET $2::bigint
                      LIMIT 1)
  AND NOT EXISTS (SELECT 1
                  FROM forebay.workflow_execution execution
                  WHERE execution.id = tick.execution_id AND execution.completed_at IS NULL)
