-- Is an execution that this schedule started still pending or running? This is a separate statement after the one that
-- locks the schedule, so that it sees what the previous holder of the lock started. It reads the newest ticks first,
-- because the newest execution is usually the open one.
SELECT EXISTS (
    SELECT 1
    FROM (SELECT tick.execution_id
          FROM forebay.schedule_tick tick
          WHERE tick.schedule_id = $1::uuid AND tick.status = 'STARTED'
          ORDER BY tick.tick_at DESC OFFSET 0) started
    JOIN forebay.workflow_execution execution
      ON execution.id = started.execution_id AND execution.completed_at IS NULL) AS open
