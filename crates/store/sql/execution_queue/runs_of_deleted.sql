-- Executions of deleted workspaces that hold a slot of this shard and whose cancellation was not requested yet. At most
-- 100.
WITH RECURSIVE hop (workspace_id) AS (
    (SELECT workspace_id
       FROM forebay.execution_queue
      WHERE shard = $1::smallint AND claim_number IS NOT NULL
      ORDER BY workspace_id
      LIMIT 1)
    UNION ALL
    SELECT (SELECT item.workspace_id FROM forebay.execution_queue item
             WHERE item.shard = $1::smallint AND item.claim_number IS NOT NULL
               AND item.workspace_id > hop.workspace_id
             ORDER BY item.workspace_id
             LIMIT 1)
      FROM hop WHERE hop.workspace_id IS NOT NULL)
SELECT execution.id, execution.workspace_id
  FROM hop JOIN forebay.workspace ON workspace.id = hop.workspace_id AND workspace.deleted_at IS NOT NULL
  JOIN forebay.execution_queue item ON item.shard = $1::smallint AND item.workspace_id = workspace.id
       AND item.claim_number IS NOT NULL
  JOIN forebay.workflow_execution execution ON execution.id = item.id AND execution.completed_at IS NULL
       AND execution.cancel_requested_at IS NULL
 ORDER BY execution.id
 LIMIT 100
