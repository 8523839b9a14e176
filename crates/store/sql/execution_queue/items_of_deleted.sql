-- Items of a shard that the caller has to fail with the reason: ready items of deleted workspaces, and delayed items of
-- deleted workspaces or definitions. At most 500 of each. block.sql, beside this file, moves the ready items of deleted
-- definitions first. Skips through the index from workspace to workspace, and for delayed items from definition to
-- definition, so no backlog is scanned.
WITH RECURSIVE ready (workspace_id) AS (
    (SELECT workspace_id
       FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_ready()
      ORDER BY workspace_id
      LIMIT 1)
    UNION ALL
    SELECT (SELECT item.workspace_id FROM forebay.execution_queue item
             WHERE item.shard = $1::smallint AND item.stage = forebay.stage_ready()
               AND item.workspace_id > ready.workspace_id
             ORDER BY item.workspace_id
             LIMIT 1)
      FROM ready WHERE ready.workspace_id IS NOT NULL),
delayed (workspace_id, definition_id) AS (
    (SELECT workspace_id, workflow_definition_id FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_delayed()
      ORDER BY workspace_id, workflow_definition_id
      LIMIT 1)
    UNION ALL
    SELECT next.* FROM delayed CROSS JOIN LATERAL (
        SELECT item.workspace_id, item.workflow_definition_id FROM forebay.execution_queue item
         WHERE item.shard = $1::smallint AND item.stage = forebay.stage_delayed()
           AND (item.workspace_id, item.workflow_definition_id) > (delayed.workspace_id, delayed.definition_id)
         ORDER BY item.workspace_id, item.workflow_definition_id LIMIT 1) next)
(SELECT waiting.id, true AS workspace_gone, waiting.definition_id
   FROM ready JOIN forebay.workspace ON workspace.id = ready.workspace_id AND workspace.deleted_at IS NOT NULL
  CROSS JOIN LATERAL (
     SELECT item.id, item.workflow_definition_id AS definition_id FROM forebay.execution_queue item
      WHERE item.shard = $1::smallint AND item.workspace_id = workspace.id AND item.stage = forebay.stage_ready()
      ORDER BY item.priority, item.rank, item.id
      LIMIT 500) waiting
  LIMIT 500)
UNION ALL
(SELECT waiting.id, workspace.deleted_at IS NOT NULL, delayed.definition_id
   FROM delayed JOIN forebay.workspace ON workspace.id = delayed.workspace_id
   LEFT JOIN forebay.workflow_definition definition ON definition.id = delayed.definition_id
  CROSS JOIN LATERAL (
     SELECT item.id FROM forebay.execution_queue item
      WHERE item.shard = $1::smallint AND item.workspace_id = delayed.workspace_id
        AND item.workflow_definition_id = delayed.definition_id AND item.stage = forebay.stage_delayed()
      LIMIT 500) waiting
  WHERE workspace.deleted_at IS NOT NULL OR definition.id IS NULL OR definition.deleted_at IS NOT NULL
  LIMIT 500)
