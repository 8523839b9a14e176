-- How many more starts a workspace with a backlog limit may have, without counting what waits each
-- time. docs/decisions/0012 tells why it is done so.
--
-- What waits now is at most what was counted plus what arrived since. Arrivals of all limited
-- workspaces are one sequence: too many for this one, never too few, and nobody's commit waits for
-- another's. Only when that bound leaves no room, or the count is a minute old, is the backlog
-- counted again, up to the limit: the nearer to the limit, the sooner. A count serves at least a
-- thousandth of the limit, so a limit of up to a thousand is exact but for starts not yet committed
-- and what comes back from a claim. A full backlog is counted again only after a pause that grows
-- with the limit.
--
-- p_keep: note the count. Not from within another program's transaction: its lock would last.
CREATE OR REPLACE FUNCTION forebay.backlog_room(p_workspace uuid, p_limit int, p_arriving int, p_keep boolean)
RETURNS int LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
DECLARE
    v_shard smallint := forebay.shard_of(p_workspace)::smallint;
    v_first bigint;
    v_last bigint;
    v_counted int;
    known record;
BEGIN
    -- Before anything is read: what arrives later is counted by those who come later.
    SELECT min(drawn.number), max(drawn.number) INTO v_first, v_last
      FROM (SELECT nextval('forebay.backlog_arrivals') AS number FROM generate_series(1, p_arriving)) drawn;
    SELECT backlog.counted, backlog.arrivals, backlog.counted_at
      INTO known
      FROM forebay.backlog
     WHERE backlog.workspace_id = p_workspace;
    IF known.counted_at > clock_timestamp() - interval '1 minute'
       AND known.counted + v_last - known.arrivals <= p_limit THEN
        RETURN p_arriving;
    ELSIF known.counted >= p_limit
          AND known.counted_at > clock_timestamp() - make_interval(secs => 0.05 + p_limit / 200000.0) THEN
        RETURN 0;
    END IF;
    IF p_keep AND p_limit > 10000 THEN
        -- One counts a long line; the others go by what is known, so that it costs no more than one.
        PERFORM 1 FROM forebay.backlog WHERE backlog.workspace_id = p_workspace FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND known.counted IS NOT NULL THEN
            RETURN CASE WHEN known.counted < p_limit THEN p_arriving ELSE 0 END;
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
        -- This call's own are not among the counted yet. Where less than a thousandth of the limit
        -- is left, that thousandth may arrive all the same before the next count.
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
