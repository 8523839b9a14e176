-- Of the next $2 schedules after $1 with a tick that waits, those whose executions have ended. Every row says where the
-- page ended, and how many it had; without any such schedule there is one row that says nothing else.
WITH page AS MATERIALIZED (
    SELECT schedule.id FROM forebay.schedule
    WHERE schedule.status = 'ACTIVE' AND schedule.buffered_at IS NOT NULL AND schedule.id > $1::uuid
    ORDER BY schedule.id LIMIT $2::bigint)
SELECT page_end.last, page_end.looked_at, schedule.id, schedule.workspace_id, schedule.workflow_definition_id,
       schedule.input, schedule.revision
FROM (SELECT (array_agg(page.id ORDER BY page.id DESC))[1] AS last, count(*) AS looked_at FROM page) page_end
LEFT JOIN (page JOIN forebay.schedule ON schedule.id = page.id) ON schedule.next_at > now()
    AND (schedule.retry_at IS NULL OR schedule.retry_at <= now())
    AND NOT EXISTS (
        SELECT 1
        FROM (SELECT tick.execution_id
              FROM forebay.schedule_tick tick
              WHERE tick.schedule_id = schedule.id AND tick.status = 'STARTED'
              ORDER BY tick.tick_at DESC OFFSET 0) started
        JOIN forebay.workflow_execution execution
          ON execution.id = started.execution_id AND execution.completed_at IS NULL)
