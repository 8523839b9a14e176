-- Items that are blocked by one of these limits (workspaces $2, definitions $3) and whose workspace or definition was
-- deleted. The caller fails them with the reason. At most 500.
SELECT waiting.id, coalesce(workspace.deleted_at IS NOT NULL, true) AS workspace_gone, limits.definition_id
  FROM (SELECT DISTINCT requested.workspace_id, requested.definition_id
          FROM unnest($2::uuid[], $3::uuid[]) AS requested(workspace_id, definition_id)) limits
  -- LIMIT 1: always a primary-key probe, never a scan.
  LEFT JOIN LATERAL (SELECT workspace.id, workspace.deleted_at
                       FROM forebay.workspace
                      WHERE workspace.id = limits.workspace_id
                      LIMIT 1) workspace ON true
  LEFT JOIN LATERAL (SELECT definition.id, definition.deleted_at
                       FROM forebay.workflow_definition definition
                      WHERE definition.id = limits.definition_id
                      LIMIT 1) definition ON true
 CROSS JOIN LATERAL (
    SELECT item.id FROM forebay.execution_queue item
     WHERE item.shard = $1::smallint AND item.workspace_id = limits.workspace_id
       AND item.workflow_definition_id = limits.definition_id AND item.stage = forebay.stage_waits_for_definition()
    UNION ALL
    SELECT item.id FROM forebay.execution_queue item
     WHERE item.shard = $1::smallint AND item.workspace_id = limits.workspace_id
       AND item.workflow_definition_id = limits.definition_id AND item.stage = forebay.stage_waits_for_key()
    LIMIT 500) waiting
 WHERE workspace.id IS NULL OR workspace.deleted_at IS NOT NULL OR definition.id IS NULL
    OR definition.deleted_at IS NOT NULL
 LIMIT 500
