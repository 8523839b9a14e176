-- Items of a shard that wait for their turn or for a time, and whose workspace, or the latter's definition, was
-- deleted: to be failed with the reason, a bounded number. Found by hopping from workspace to workspace, and among
-- the delayed from definition to definition; no backlog is scanned.
WITH RECURSIVE ready (ws) AS (
    (SELECT workspace_id FROM forebay.execution_queue WHERE shard = $1::smallint AND stage = forebay.stage_ready() ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT q.workspace_id FROM forebay.execution_queue q
             WHERE q.shard = $1::smallint AND q.stage = forebay.stage_ready() AND q.workspace_id > ready.ws ORDER BY q.workspace_id LIMIT 1)
      FROM ready WHERE ready.ws IS NOT NULL),
delayed (ws, def) AS (
    (SELECT workspace_id, workflow_definition_id FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_delayed() ORDER BY workspace_id, workflow_definition_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM delayed CROSS JOIN LATERAL (
        SELECT q.workspace_id, q.workflow_definition_id FROM forebay.execution_queue q
         WHERE q.shard = $1::smallint AND q.stage = forebay.stage_delayed() AND (q.workspace_id, q.workflow_definition_id) > (delayed.ws, delayed.def)
         ORDER BY q.workspace_id, q.workflow_definition_id LIMIT 1) n)
(SELECT i.id, true AS workspace_gone, i.def
   FROM ready JOIN forebay.workspace w ON w.id = ready.ws AND w.deleted_at IS NOT NULL
  CROSS JOIN LATERAL (SELECT q.id, q.workflow_definition_id AS def FROM forebay.execution_queue q
      WHERE q.shard = $1::smallint AND q.workspace_id = w.id AND q.stage = forebay.stage_ready() ORDER BY q.rank, q.id LIMIT 500) i
  LIMIT 500)
UNION ALL
(SELECT i.id, w.deleted_at IS NOT NULL, delayed.def
   FROM delayed JOIN forebay.workspace w ON w.id = delayed.ws
   LEFT JOIN forebay.workflow_definition d ON d.id = delayed.def
  CROSS JOIN LATERAL (SELECT q.id FROM forebay.execution_queue q
      WHERE q.shard = $1::smallint AND q.workspace_id = delayed.ws AND q.workflow_definition_id = delayed.def AND q.stage = forebay.stage_delayed()
      LIMIT 500) i
  WHERE w.deleted_at IS NOT NULL OR d.id IS NULL OR d.deleted_at IS NOT NULL
  LIMIT 500)
