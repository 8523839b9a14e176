-- Deletes old ticks of a schedule; at least the newest $2 stay. A deleted tick cannot fire again, because the schedule
-- has advanced. A buffered tick stays. So does a tick whose execution is open, because the overlap check needs it.
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
