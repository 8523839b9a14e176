-- Of the next $2 schedules after $1 with a tick that waits, those whose executions have ended. Every row says where the
-- page ended, and how many it had; without any such schedule there is one row that says nothing else.
WITH page AS MATERIALIZED (
    SELECT s.id FROM forebay.schedule s
    WHERE s.status = 'ACTIVE' AND s.buffered_at IS NOT NULL AND s.id > $1::uuid
    ORDER BY s.id LIMIT $2::bigint)
SELECT p.last, p.looked_at, s.id, s.workspace_id, s.workflow_definition_id, s.input, s.revision
FROM (SELECT (array_agg(page.id ORDER BY page.id DESC))[1] AS last, count(*) AS looked_at FROM page) p
LEFT JOIN (page JOIN forebay.schedule s ON s.id = page.id) ON s.next_at > now() AND (s.retry_at IS NULL OR s.retry_at <= now())
    AND NOT EXISTS (
        SELECT 1 FROM (SELECT t.execution_id FROM forebay.schedule_tick t WHERE t.schedule_id = s.id AND t.status = 'STARTED'
                        ORDER BY t.tick_at DESC OFFSET 0) t
          JOIN forebay.workflow_execution e ON e.id = t.execution_id AND e.completed_at IS NULL)
