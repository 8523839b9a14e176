-- A process's heartbeat, each second, with everything it must learn at that pace in one call:
-- 'gone' (it was declared dead and must come back under a new id), 'shard' (the shards it looks after), 'claim' (shards
-- of full owners that it claims for as well), 'waiting' (how many runs of dead processes have no owner yet, in all
-- shards), 'cancel' (its own runs that somebody wants to end), 'wake' (its own runs that something came for), 'dead'
-- (processes that are silent or ended lately, and may have left runs behind).
--
-- Looking after a shard and having room for new work are two facts. Shards are shared out by lease among all living
-- processes that dispatch (p_dispatches), full or not: keep up to a fair share, let one go when above, take free or
-- expired ones when below. Losing one late is harmless: two claimers of a shard only wait for each other.
-- A full owner's shards keep their owner, and are also claimed for by the processes with room (p_has_room), each taking
-- every n-th shard. p_waiting is what the caller itself found waiting in the shards it looks after.
CREATE OR REPLACE FUNCTION forebay_r1.heartbeat(
    p_process uuid, p_dispatches boolean, p_has_room boolean, p_waiting int, p_lease_s float8, p_dead_after_s float8)
RETURNS TABLE (what text, shard smallint, id uuid, runs bigint)
LANGUAGE plpgsql VOLATILE AS $fn$
#variable_conflict use_column
BEGIN
    UPDATE forebay.process
       SET seen_at = clock_timestamp(), dispatching = p_dispatches, has_room = p_has_room, waiting_runs = p_waiting
     WHERE process.id = p_process AND process.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'gone', NULL::smallint, p_process, NULL::bigint;
        RETURN;
    END IF;
    IF p_dispatches THEN
        RETURN QUERY
        WITH fair AS MATERIALIZED (
            SELECT ceil(forebay.shards()::numeric / greatest(1, (
                SELECT count(*) FROM forebay.process
                 WHERE process.id <> p_process AND process.dispatching AND process.ended_at IS NULL
                   AND process.seen_at > clock_timestamp() - make_interval(secs => p_lease_s)) + 1))::int AS share),
        mine AS MATERIALIZED (
            SELECT lease.shard, count(*) OVER () AS held, row_number() OVER (ORDER BY lease.shard) AS place
              FROM forebay.shard_owner lease WHERE lease.owner = p_process),
        free AS MATERIALIZED (
            SELECT lease.shard FROM forebay.shard_owner lease
             WHERE lease.until <= clock_timestamp() AND lease.owner IS DISTINCT FROM p_process
             ORDER BY random() LIMIT greatest((SELECT share FROM fair) - (SELECT count(*) FROM mine), 0)
             FOR UPDATE SKIP LOCKED),
        wanted AS (
            SELECT mine.shard, mine.held <= fair.share OR mine.place > 1 AS keep FROM mine, fair
            UNION ALL SELECT free.shard, true FROM free),
        leased AS (
            UPDATE forebay.shard_owner lease
               SET owner = CASE WHEN wanted.keep THEN p_process END,
                   until = CASE WHEN wanted.keep THEN clock_timestamp() + make_interval(secs => p_lease_s)
                                ELSE '-infinity' END
              FROM wanted
             WHERE lease.shard = wanted.shard AND (lease.owner = p_process OR lease.until <= clock_timestamp())
            RETURNING lease.shard, wanted.keep)
        SELECT 'shard', leased.shard, NULL::uuid, NULL::bigint FROM leased WHERE leased.keep;
    END IF;
    IF p_dispatches AND p_has_room THEN
        RETURN QUERY
        WITH with_room AS MATERIALIZED (
            SELECT process.id, row_number() OVER (ORDER BY process.id) - 1 AS place, count(*) OVER () AS many
              FROM forebay.process
             WHERE process.dispatching AND process.has_room AND process.ended_at IS NULL
               AND process.seen_at > clock_timestamp() - make_interval(secs => p_lease_s))
        SELECT 'claim', lease.shard, NULL::uuid, NULL::bigint
          FROM forebay.shard_owner lease CROSS JOIN with_room me
         WHERE me.id = p_process AND lease.shard % me.many = me.place
           AND NOT EXISTS (SELECT 1 FROM with_room roomy WHERE roomy.id = lease.owner);
    END IF;
    RETURN QUERY
    SELECT 'waiting', NULL::smallint, NULL::uuid, coalesce(sum(process.waiting_runs), 0)::bigint FROM forebay.process
     WHERE process.ended_at IS NULL AND process.seen_at > clock_timestamp() - make_interval(secs => p_lease_s);
    RETURN QUERY
    SELECT 'cancel', NULL::smallint, execution.id, NULL::bigint FROM forebay.workflow_execution execution
     WHERE execution.owner = p_process AND execution.cancel_requested_at IS NOT NULL AND execution.completed_at IS NULL
     LIMIT 1000;
    RETURN QUERY
    SELECT 'wake', NULL::smallint, execution.id, NULL::bigint FROM forebay.workflow_execution execution
     WHERE execution.owner = p_process AND execution.wake_at <= clock_timestamp()
       AND execution.cancel_requested_at IS NULL
     LIMIT 1000;
    RETURN QUERY
    SELECT 'dead', NULL::smallint, process.id, NULL::bigint FROM forebay.process
     WHERE process.id <> p_process AND (process.ended_at > clock_timestamp() - interval '1 minute'
           OR (process.ended_at IS NULL
               AND process.seen_at < clock_timestamp() - make_interval(secs => p_dead_after_s)))
     LIMIT 100;
END $fn$;
