-- Reads the next $2 schedules after $1 that have a buffered tick, and returns those whose executions have all ended.
-- Every row has `last`, the end of the page, and `rows_read`, the number of schedules read. If no schedule qualifies,
-- there is one row with only these two.
WITH page AS MATERIALIZED (
    SELECT schedule.id FROM forebay.schedule
    WHERE schedule.status = 'ACTIVE' AND schedule.buffered_at IS NOT NULL AND schedule.id > $1::uuid
    ORDER BY schedule.id LIMIT $2::bigint)
SELECT page_end.last, page_end.rows_read, schedule.id, schedule.workspace_id, schedule.workflow_definition_id,
       schedule.input, schedule.revision
FROM (SELECT (array_agg(page.id ORDER BY page.id DESC))[1] AS last, count(*) AS rows_read FROM page) page_end
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
