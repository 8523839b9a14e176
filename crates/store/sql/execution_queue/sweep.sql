-- Workspaces of these shards that have a ready item and a free slot. Skips through the ready index from workspace to
-- workspace, so a workspace with a million ready items costs one probe.
--
-- The array is read in a subquery, so that the planner does not see its length. If it saw it, it would plan each call
-- again, which takes longer than the call.
SELECT workspace.id, workspace.weight::int
  FROM unnest((SELECT $1::smallint[])) AS asked (shard)
 CROSS JOIN LATERAL (
    WITH RECURSIVE hop (workspace_id) AS (
        (SELECT workspace_id
           FROM forebay.execution_queue
          WHERE shard = asked.shard AND stage = forebay.stage_ready()
          ORDER BY workspace_id
          LIMIT 1)
        UNION ALL
        SELECT (SELECT item.workspace_id FROM forebay.execution_queue item
                 WHERE item.shard = asked.shard AND item.stage = forebay.stage_ready()
                   AND item.workspace_id > hop.workspace_id
                 ORDER BY item.workspace_id
                 LIMIT 1)
          FROM hop WHERE hop.workspace_id IS NOT NULL)
    SELECT workspace_id FROM hop) ready
 CROSS JOIN LATERAL (SELECT *
                       FROM forebay.workspace
                      WHERE workspace.id = ready.workspace_id AND NOT workspace.paused AND workspace.deleted_at IS NULL
                      LIMIT 1) workspace
 CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = workspace.tier LIMIT 1) tier
 CROSS JOIN LATERAL (SELECT count(*)::int AS held FROM forebay.execution_queue holder
                      WHERE holder.shard = asked.shard AND holder.workspace_id = workspace.id
                        AND holder.stage = forebay.stage_slot()) slots
 WHERE slots.held < coalesce(workspace.limit_override, tier.max_running)
