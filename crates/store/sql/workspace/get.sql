-- One workspace that is not deleted, with the slots it uses and its ready items, counted up to 1001.
SELECT workspace.id, workspace.name, workspace.tier, workspace.limit_override, workspace.paused, workspace.weight,
       workspace.max_backlog, workspace.created_at, coalesce(workspace.limit_override, tier.max_running) AS max_running,
       (SELECT count(*)::int FROM forebay.execution_queue item
         WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
           AND item.claim_number IS NOT NULL) AS running,
       (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
         WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id AND item.stage = forebay.stage_ready()
         LIMIT 1001) counted) AS ready
  FROM forebay.workspace JOIN forebay.tier ON tier.name = workspace.tier
 WHERE workspace.deleted_at IS NULL AND workspace.id = $1::uuid
