-- Waiting items whose workspace or definition was deleted: to be failed with the reason, a bounded number.
-- $1 shard. Found by hopping over the workspaces that wait, not by scanning the backlog.
WITH RECURSIVE hop (ws) AS (
    (SELECT workspace_id FROM execution_queue WHERE shard = $1::smallint AND stage = 0 ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT q.workspace_id FROM execution_queue q
             WHERE q.shard = $1::smallint AND q.stage = 0 AND q.workspace_id > hop.ws ORDER BY q.workspace_id LIMIT 1)
      FROM hop WHERE hop.ws IS NOT NULL)
SELECT i.id FROM hop JOIN workspace w ON w.id = hop.ws AND w.deleted_at IS NOT NULL
 CROSS JOIN LATERAL (SELECT q.id FROM execution_queue q
     WHERE q.shard = $1::smallint AND q.workspace_id = w.id AND q.stage = 0 ORDER BY q.rank, q.id LIMIT 500) i
 LIMIT 500
