-- Workspaces of these shards that have a ready item and a free slot. Skips through the ready index from workspace to
-- workspace, so a workspace with a million ready items costs one probe.
--
-- It is also the probe of the marks: if a start committed so late that it is ready below its workspace's mark, no claim
-- sees it, and the mark is lowered to it. This needs no shard lock, because a mark that is too low only costs time.
--
-- The array is read in a subquery, so that the planner does not see its length. If it saw it, it would plan each call
-- again, which takes longer than the call.
WITH ready AS MATERIALIZED (
    SELECT asked.shard, found.workspace_id
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
        SELECT workspace_id FROM hop WHERE workspace_id IS NOT NULL) found),
marked AS MATERIALIZED (
    SELECT ready.shard, ready.workspace_id, mark.ready_from, mark.slots_after, mark.slots_known
      FROM ready LEFT JOIN LATERAL (SELECT *
                                      FROM forebay.claim_mark
                                     WHERE claim_mark.workspace_id = ready.workspace_id
                                     LIMIT 1) mark ON true),
late AS MATERIALIZED (
    SELECT marked.workspace_id, level.priority, first.rank
      FROM marked CROSS JOIN generate_series(1, 5) AS level(priority)
     CROSS JOIN LATERAL (
        SELECT item.rank FROM forebay.execution_queue item
         WHERE item.shard = marked.shard AND item.workspace_id = marked.workspace_id
           AND item.stage = forebay.stage_ready() AND item.priority = level.priority
           AND item.rank < marked.ready_from[level.priority]
         ORDER BY item.rank LIMIT 1) first),
lowered AS (
    UPDATE forebay.claim_mark mark
       SET ready_from = ARRAY(
               SELECT least(mark.ready_from[level.priority], late.rank)
                 FROM generate_series(1, 5) AS level(priority)
                 LEFT JOIN late ON late.workspace_id = mark.workspace_id AND late.priority = level.priority
                ORDER BY level.priority)
     -- Another probe may lower the same marks in another order, and neither may wait for the other.
     WHERE mark.workspace_id = ANY (ARRAY(SELECT known.workspace_id
                                            FROM forebay.claim_mark known
                                           WHERE known.workspace_id = ANY (ARRAY(SELECT late.workspace_id FROM late))
                                             FOR UPDATE SKIP LOCKED)))
SELECT workspace.id, workspace.weight::int
  FROM marked
 CROSS JOIN LATERAL (SELECT *
                       FROM forebay.workspace
                      WHERE workspace.id = marked.workspace_id AND NOT workspace.paused
                        AND workspace.deleted_at IS NULL
                      LIMIT 1) workspace
 CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = workspace.tier LIMIT 1) tier
 CROSS JOIN LATERAL (
    SELECT count(*)::int AS held
      FROM forebay_r1.holders(marked.shard, marked.workspace_id, marked.slots_after, marked.slots_known)) slots
 WHERE slots.held < coalesce(workspace.limit_override, tier.max_running)
