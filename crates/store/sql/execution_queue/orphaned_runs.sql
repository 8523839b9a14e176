-- Executions of deleted workspaces of a shard that hold a slot and have not been asked to end, a bounded number.
WITH RECURSIVE hop (ws) AS (
    (SELECT workspace_id FROM forebay.execution_queue WHERE shard = $1::smallint AND stage = forebay.stage_slot() ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT q.workspace_id FROM forebay.execution_queue q
             WHERE q.shard = $1::smallint AND q.stage = forebay.stage_slot() AND q.workspace_id > hop.ws ORDER BY q.workspace_id LIMIT 1)
      FROM hop WHERE hop.ws IS NOT NULL)
SELECT e.id, e.workspace_id
  FROM hop JOIN forebay.workspace w ON w.id = hop.ws AND w.deleted_at IS NOT NULL
  JOIN forebay.execution_queue q ON q.shard = $1::smallint AND q.workspace_id = w.id AND q.stage = forebay.stage_slot()
  JOIN forebay.workflow_execution e ON e.id = q.id AND e.completed_at IS NULL AND e.cancel_requested_at IS NULL
 ORDER BY e.id
 LIMIT 100
