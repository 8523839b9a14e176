-- How many more starts a workspace with a backlog limit may accept, without counting its backlog at each call.
-- docs/decisions/0012 explains why.
--
-- The backlog is at most the last count plus the arrivals since that count. Arrivals of all workspaces with a limit
-- draw from one sequence. So the bound may be too high for this workspace, but never too low, and no commit waits for
-- another. The backlog is counted again, up to the limit, only if that bound leaves no room or if the count is a minute
-- old. So counts are more frequent near the limit.
--
-- A count leaves room for at least a thousandth of the limit before the next count. So a limit of up to a thousand is
-- exact, except for starts not yet committed and items that a claim gives back. After a count found the backlog full,
-- the next count waits for a time that grows with the limit.
--
-- p_keep: store the count. It must be false inside another program's transaction, which would keep the row locked until
-- that transaction ends.
CREATE OR REPLACE FUNCTION forebay.backlog_room(p_workspace uuid, p_limit int, p_arriving int, p_keep boolean)
RETURNS int LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
DECLARE
    v_shard smallint := forebay.shard_of(p_workspace)::smallint;
    v_first bigint;
    v_last bigint;
    v_counted int;
    v_known record;
BEGIN
    -- The numbers are drawn before anything is read, so that later calls count whatever arrives after this point.
    SELECT min(drawn.number), max(drawn.number) INTO v_first, v_last
      FROM (SELECT nextval('forebay.backlog_arrivals') AS number FROM generate_series(1, p_arriving)) drawn;
    SELECT backlog.counted, backlog.arrivals, backlog.counted_at
      INTO v_known
      FROM forebay.backlog
     WHERE backlog.workspace_id = p_workspace;
    IF v_known.counted_at > clock_timestamp() - interval '1 minute'
       AND v_known.counted + v_last - v_known.arrivals <= p_limit THEN
        RETURN p_arriving;
    ELSIF v_known.counted >= p_limit
          AND v_known.counted_at > clock_timestamp() - make_interval(secs => 0.05 + p_limit / 200000.0) THEN
        RETURN 0;
    END IF;
    IF p_keep AND p_limit > 10000 THEN
        -- Counting a long queue is expensive, so only one call at a time does it; concurrent calls use the last count.
        PERFORM 1 FROM forebay.backlog WHERE backlog.workspace_id = p_workspace FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND v_known.counted IS NOT NULL THEN
            RETURN CASE WHEN v_known.counted < p_limit THEN p_arriving ELSE 0 END;
        END IF;
    END IF;
    SELECT count(*) INTO v_counted FROM (
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace AND item.stage = forebay.stage_ready()
        UNION ALL
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace AND item.stage = forebay.stage_delayed()
        UNION ALL
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace AND item.stage = forebay.stage_waits_for_key()
        UNION ALL
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace
           AND item.stage = forebay.stage_waits_for_definition()
        LIMIT p_limit) waiting;
    IF p_keep THEN
        -- The count does not include this call's own starts yet. If less than a thousandth of the limit is left, starts
        -- up to that thousandth are still accepted before the next count.
        UPDATE forebay.backlog
           SET counted = v_counted, counted_at = clock_timestamp(),
               arrivals = v_first - 1
                 + CASE WHEN v_counted < p_limit THEN greatest(p_limit / 1000 - (p_limit - v_counted), 0) ELSE 0 END
         WHERE backlog.ctid = (SELECT backlog.ctid
                                 FROM forebay.backlog
                                WHERE backlog.workspace_id = p_workspace
                                FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN least(greatest(p_limit - v_counted, 0), p_arriving);
END $fn$;
