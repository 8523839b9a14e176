-- Schedules with a tick to look at, or with one that waits for an execution which has ended, the longest due first.
SELECT s.id, s.workspace_id, s.workflow_definition_id, s.input, s.revision
FROM (
    (SELECT s.id, s.next_at AS at FROM schedule s
      WHERE s.status = 'ACTIVE' AND s.next_at <= now() ORDER BY s.next_at, s.id LIMIT $1::bigint)
    UNION ALL
    (SELECT s.id, s.buffered_at FROM schedule s
      WHERE s.status = 'ACTIVE' AND s.buffered_at IS NOT NULL AND s.next_at > now()
        AND NOT EXISTS (
            SELECT 1 FROM (SELECT t.execution_id FROM schedule_tick t WHERE t.schedule_id = s.id AND t.status = 'STARTED'
                            ORDER BY t.tick_at DESC LIMIT 100) t
              JOIN workflow_execution e ON e.id = t.execution_id AND e.completed_at IS NULL)
      ORDER BY s.buffered_at, s.id LIMIT $1::bigint)) d
JOIN schedule s ON s.id = d.id
ORDER BY d.at, d.id
LIMIT $1::bigint
