-- A process's heartbeat, each second, with everything it must learn at that pace in one call:
-- 'gone' (it was declared dead and must come back under a new id), 'shard' (the shards it looks
-- after), 'cancel' (its own runs that somebody wants to end), 'wake' (its own runs that something came for), 'dead'
-- (processes that are silent or ended lately, and may have left runs behind).
--
-- Shards are shared out by lease: keep up to a fair share, let one go when above, take free or
-- expired ones when below. Losing one late is harmless: two claimers of a shard only wait for
-- each other. A process without room (p_dispatches false) takes none, and lets its own go to others.
CREATE OR REPLACE FUNCTION fb_beat_2(p_process uuid, p_dispatches boolean, p_lease_s float8, p_dead_after_s float8)
RETURNS TABLE (what text, shard smallint, id uuid)
LANGUAGE plpgsql VOLATILE AS $fn$
#variable_conflict use_column
BEGIN
    UPDATE process p SET seen_at = clock_timestamp(), dispatching = p_dispatches WHERE p.id = p_process AND p.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'gone', NULL::smallint, p_process;
        RETURN;
    END IF;
    IF p_dispatches THEN
        RETURN QUERY
        WITH q AS MATERIALIZED (
            SELECT ceil(64.0 / greatest(1, (
                SELECT count(*) FROM process p
                 WHERE p.id <> p_process AND p.dispatching AND p.ended_at IS NULL
                   AND p.seen_at > clock_timestamp() - make_interval(secs => p_lease_s)) + 1))::int AS share),
        mine AS MATERIALIZED (
            SELECT o.shard, count(*) OVER () AS n, row_number() OVER (ORDER BY o.shard) AS rn
              FROM shard_owner o WHERE o.owner = p_process),
        take AS MATERIALIZED (
            SELECT o.shard FROM shard_owner o
             WHERE o.until <= clock_timestamp() AND o.owner IS DISTINCT FROM p_process
             ORDER BY random() LIMIT greatest((SELECT share FROM q) - (SELECT count(*) FROM mine), 0)
             FOR UPDATE SKIP LOCKED),
        x AS (SELECT mine.shard, mine.n <= q.share OR mine.rn > 1 AS keep FROM mine, q
              UNION ALL SELECT take.shard, true FROM take),
        u AS (
            UPDATE shard_owner o
               SET owner = CASE WHEN x.keep THEN p_process END,
                   until = CASE WHEN x.keep THEN clock_timestamp() + make_interval(secs => p_lease_s) ELSE '-infinity' END
              FROM x WHERE o.shard = x.shard AND (o.owner = p_process OR o.until <= clock_timestamp())
            RETURNING o.shard, x.keep)
        SELECT 'shard', u.shard, NULL::uuid FROM u WHERE u.keep;
    END IF;
    RETURN QUERY
    SELECT 'cancel', NULL::smallint, e.id FROM workflow_execution e
     WHERE e.owner = p_process AND e.cancel_requested_at IS NOT NULL AND e.completed_at IS NULL LIMIT 1000;
    RETURN QUERY
    SELECT 'wake', NULL::smallint, e.id FROM workflow_execution e
     WHERE e.owner = p_process AND e.wake_at <= clock_timestamp() AND e.cancel_requested_at IS NULL LIMIT 1000;
    RETURN QUERY
    SELECT 'dead', NULL::smallint, p.id FROM process p
     WHERE p.id <> p_process AND (p.ended_at > clock_timestamp() - interval '1 minute'
           OR (p.ended_at IS NULL AND p.seen_at < clock_timestamp() - make_interval(secs => p_dead_after_s)))
     LIMIT 100;
END $fn$;
