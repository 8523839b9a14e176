-- Of these gates ($2 workspaces, $3 definitions) those of anything deleted, and what waits there: to be failed with
-- the reason, a bounded number.
SELECT waiting.id, coalesce(workspace.deleted_at IS NOT NULL, true) AS workspace_gone, gate.definition_id
  FROM (SELECT DISTINCT asked.workspace_id, asked.definition_id
          FROM unnest($2::uuid[], $3::uuid[]) AS asked(workspace_id, definition_id)) gate
  -- LIMIT 1: always a primary-key probe, never a scan.
  LEFT JOIN LATERAL (SELECT workspace.id, workspace.deleted_at
                       FROM forebay.workspace
                      WHERE workspace.id = gate.workspace_id
                      LIMIT 1) workspace ON true
  LEFT JOIN LATERAL (SELECT definition.id, definition.deleted_at
                       FROM forebay.workflow_definition definition
                      WHERE definition.id = gate.definition_id
                      LIMIT 1) definition ON true
 CROSS JOIN LATERAL (
    SELECT item.id FROM forebay.execution_queue item
     WHERE item.shard = $1::smallint AND item.workspace_id = gate.workspace_id
       AND item.workflow_definition_id = gate.definition_id AND item.stage = forebay.stage_waits_for_definition()
    UNION ALL
    SELECT item.id FROM forebay.execution_queue item
     WHERE item.shard = $1::smallint AND item.workspace_id = gate.workspace_id
       AND item.workflow_definition_id = gate.definition_id AND item.stage = forebay.stage_waits_for_key()
    LIMIT 500) waiting
 WHERE workspace.id IS NULL OR workspace.deleted_at IS NOT NULL OR definition.id IS NULL
    OR definition.deleted_at IS NOT NULL
 LIMIT 500
