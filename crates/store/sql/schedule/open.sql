-- Does an execution that this schedule started still wait or run? A statement of its own, after the row is locked: it
-- must see what whoever held the lock before has started. The newest first: it is the one that is open, mostly.
SELECT EXISTS (
    SELECT 1 FROM (SELECT t.execution_id FROM forebay.schedule_tick t WHERE t.schedule_id = $1::uuid AND t.status = 'STARTED'
                    ORDER BY t.tick_at DESC OFFSET 0) t
      JOIN forebay.workflow_execution e ON e.id = t.execution_id AND e.completed_at IS NULL) AS open
