-- How a shard stands, for gauges. Flat: counts stop at p_most, and the hop through the ready and
-- slot indexes at p_workspaces workspaces each; what a call costs does not grow with the backlog.
-- Delayed items have no index by shard, so they are counted for all shards together, by whoever
-- asks about shard 0.
--
-- The oldest ready item of a workspace is the first by rank: with equal priorities the oldest by age.
CREATE OR REPLACE FUNCTION forebay_r1.sample_shard(p_shard smallint, p_most int, p_workspaces int)
RETURNS TABLE (ready bigint, delayed bigint, for_key bigint, for_definition bigint, slots bigint, slots_limit bigint,
    oldest_for_turn_s float8, oldest_for_slot_s float8)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE ready_hop (ws, since, n) AS (
        (SELECT q.workspace_id, q.created_at, 1 FROM forebay.execution_queue q
          WHERE q.shard = p_shard AND q.stage = forebay.stage_ready() ORDER BY q.workspace_id, q.rank, q.id LIMIT 1)
        UNION ALL
        SELECT x.workspace_id, x.created_at, h.n + 1 FROM ready_hop h CROSS JOIN LATERAL (
            SELECT q.workspace_id, q.created_at FROM forebay.execution_queue q
             WHERE q.shard = p_shard AND q.stage = forebay.stage_ready() AND q.workspace_id > h.ws
             ORDER BY q.workspace_id, q.rank, q.id LIMIT 1) x
         WHERE h.n < p_workspaces),
    slot_hop (ws, n) AS (
        (SELECT q.workspace_id, 1 FROM forebay.execution_queue q
          WHERE q.shard = p_shard AND q.stage = forebay.stage_slot() ORDER BY q.workspace_id LIMIT 1)
        UNION ALL
        SELECT x.workspace_id, h.n + 1 FROM slot_hop h CROSS JOIN LATERAL (
            SELECT q.workspace_id FROM forebay.execution_queue q
             WHERE q.shard = p_shard AND q.stage = forebay.stage_slot() AND q.workspace_id > h.ws
             ORDER BY q.workspace_id LIMIT 1) x
         WHERE h.n < p_workspaces),
    busy AS (SELECT h.ws FROM ready_hop h UNION SELECT h.ws FROM slot_hop h),
    w AS MATERIALIZED (
        SELECT ws.id, coalesce(ws.limit_override, tier.max_running) AS lim, ws.paused OR ws.deleted_at IS NOT NULL AS closed
          FROM busy CROSS JOIN LATERAL (SELECT * FROM forebay.workspace x WHERE x.id = busy.ws LIMIT 1) ws
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier y WHERE y.name = ws.tier LIMIT 1) tier),
    r AS MATERIALIZED (
        SELECT extract(epoch FROM clock_timestamp() - h.since)::float8 AS age,
               NOT w.closed AND (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue s
                    WHERE s.shard = p_shard AND s.workspace_id = h.ws AND s.stage = forebay.stage_slot() LIMIT w.lim) s) < w.lim AS has_slot
          FROM ready_hop h JOIN w ON w.id = h.ws)
    SELECT (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_ready() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE p_shard = 0 AND q.stage = forebay.stage_delayed() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_waits_for_key() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_waits_for_definition() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_slot() LIMIT p_most) x),
           (SELECT coalesce(sum(w.lim), 0)::bigint FROM w),
           (SELECT coalesce(max(r.age), 0) FROM r WHERE r.has_slot),
           (SELECT coalesce(max(r.age), 0) FROM r WHERE NOT r.has_slot);
END $fn$;
