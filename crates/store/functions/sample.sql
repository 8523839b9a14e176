-- Counts the items of a shard, for gauges. The cost does not grow with the backlog: each count stops at p_most, and the
-- walks through the ready index and the slot index stop at p_workspaces workspaces. Delayed items have no index by
-- shard, so the sample of shard 0 counts those of all shards, and the other samples return 0.
--
-- For each workspace, the oldest of the first ready items of each priority is its oldest one.
CREATE OR REPLACE FUNCTION forebay_r1.sample_shard(p_shard smallint, p_most int, p_workspaces int)
RETURNS TABLE (ready bigint, delayed bigint, for_key bigint, for_definition bigint, slots bigint, slots_limit bigint,
    oldest_for_turn_s float8, oldest_for_slot_s float8)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE ready_hop (workspace_id, hops) AS (
        (SELECT item.workspace_id, 1 FROM forebay.execution_queue item
          WHERE item.shard = p_shard AND item.stage = forebay.stage_ready() ORDER BY item.workspace_id LIMIT 1)
        UNION ALL
        SELECT next.workspace_id, hop.hops + 1 FROM ready_hop hop CROSS JOIN LATERAL (
            SELECT item.workspace_id FROM forebay.execution_queue item
             WHERE item.shard = p_shard AND item.stage = forebay.stage_ready() AND item.workspace_id > hop.workspace_id
             ORDER BY item.workspace_id LIMIT 1) next
         WHERE hop.hops < p_workspaces),
    slot_hop (workspace_id, hops) AS (
        (SELECT item.workspace_id, 1 FROM forebay.execution_queue item
          WHERE item.shard = p_shard AND item.claim_number IS NOT NULL ORDER BY item.workspace_id LIMIT 1)
        UNION ALL
        SELECT next.workspace_id, hop.hops + 1 FROM slot_hop hop CROSS JOIN LATERAL (
            SELECT item.workspace_id FROM forebay.execution_queue item
             WHERE item.shard = p_shard AND item.claim_number IS NOT NULL AND item.workspace_id > hop.workspace_id
             ORDER BY item.workspace_id LIMIT 1) next
         WHERE hop.hops < p_workspaces),
    busy AS (SELECT hop.workspace_id FROM ready_hop hop UNION SELECT hop.workspace_id FROM slot_hop hop),
    workspaces AS MATERIALIZED (
        SELECT known.id, coalesce(known.limit_override, tier.max_running) AS max_running,
               known.paused OR known.deleted_at IS NOT NULL AS closed
          FROM busy
         CROSS JOIN LATERAL (SELECT * FROM forebay.workspace WHERE workspace.id = busy.workspace_id LIMIT 1) known
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = known.tier LIMIT 1) tier),
    first_in_line AS MATERIALIZED (
        SELECT extract(epoch FROM clock_timestamp() - (
                   SELECT min(first.created_at) FROM generate_series(1, 5) AS level(priority) CROSS JOIN LATERAL (
                        SELECT item.created_at FROM forebay.execution_queue item
                         WHERE item.shard = p_shard AND item.workspace_id = hop.workspace_id
                           AND item.stage = forebay.stage_ready() AND item.priority = level.priority
                         ORDER BY item.rank, item.id LIMIT 1) first))::float8 AS age,
               NOT workspaces.closed AND (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue holder
                    WHERE holder.shard = p_shard AND holder.workspace_id = hop.workspace_id
                      AND holder.claim_number IS NOT NULL
                    LIMIT workspaces.max_running) counted) < workspaces.max_running AS has_slot
          FROM ready_hop hop JOIN workspaces ON workspaces.id = hop.workspace_id)
    SELECT (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.stage = forebay.stage_ready()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE p_shard = 0 AND item.stage = forebay.stage_delayed()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.stage = forebay.stage_waits_for_key()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.stage = forebay.stage_waits_for_definition()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.claim_number IS NOT NULL
                     LIMIT p_most) counted),
           (SELECT coalesce(sum(workspaces.max_running), 0)::bigint FROM workspaces),
           (SELECT coalesce(max(first_in_line.age), 0) FROM first_in_line WHERE first_in_line.has_slot),
           (SELECT coalesce(max(first_in_line.age), 0) FROM first_in_line WHERE NOT first_in_line.has_slot);
END $fn$;
