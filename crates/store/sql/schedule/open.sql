-- Does an execution that this schedule started still wait or run? A statement of its own, after the row is locked: it
-- must see what whoever held the lock before has started. The newest first: it is the one that is open, mostly.
SELECT EXISTS (
    SELECT 1
    FROM (SELECT tick.execution_id
          FROM forebay.schedule_tick tick
          WHERE tick.schedule_id = $1::uuid AND tick.status = 'STARTED'
          ORDER BY tick.tick_at DESC OFFSET 0) started
    JOIN forebay.workflow_execution execution
      ON execution.id = started.execution_id AND execution.completed_at IS NULL) AS open
