-- Workspaces of a shard that have something ready and a free slot. Hops through the ready index
-- from workspace to workspace, so a backlog of a million costs one probe.
WITH RECURSIVE hop (workspace_id) AS (
    (SELECT workspace_id
       FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_ready()
      ORDER BY workspace_id
      LIMIT 1)
    UNION ALL
    SELECT (SELECT item.workspace_id FROM forebay.execution_queue item
             WHERE item.shard = $1::smallint AND item.stage = forebay.stage_ready()
               AND item.workspace_id > hop.workspace_id
             ORDER BY item.workspace_id
             LIMIT 1)
      FROM hop WHERE hop.workspace_id IS NOT NULL)
SELECT workspace.id, workspace.weight::int
  FROM hop
 CROSS JOIN LATERAL (SELECT *
                       FROM forebay.workspace
                      WHERE workspace.id = hop.workspace_id AND NOT workspace.paused AND workspace.deleted_at IS NULL
                      LIMIT 1) workspace
 CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = workspace.tier LIMIT 1) tier
 CROSS JOIN LATERAL (SELECT count(*)::int AS held FROM forebay.execution_queue holder
                      WHERE holder.shard = $1::smallint AND holder.workspace_id = workspace.id
                        AND holder.stage = forebay.stage_slot()) slots
 WHERE slots.held < coalesce(workspace.limit_override, tier.max_running)
