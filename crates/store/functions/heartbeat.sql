-- A process's heartbeat, sent every second. One call returns everything that the process must learn at that rate:
--   declared_dead  it was declared dead and must register under a new id
--   shard          the shards it owns
--   claim          shards of full owners that it also claims for
--   waiting        how many runs of dead processes have no owner yet, in all shards
--   cancel         its own runs whose end was requested
--   wake           its own runs for which something arrived
--   dead           processes that are silent or ended lately, and may have left runs behind
--
-- Owning shards and having room for new work are independent. All living processes that dispatch (p_dispatches), full
-- or not, share the shards by lease. Each process keeps up to its fair share. A process above its share gives one shard
-- up per heartbeat; a process below its share takes free or expired shards. A late handover is harmless: two processes
-- that claim for one shard only wait for each other.
--
-- The shards of a full owner keep their owner. Processes with room (p_has_room) also claim for those shards, which are
-- divided among them. The caller found p_waiting runs of dead processes in its own shards for which it has no room.
CREATE OR REPLACE FUNCTION forebay_r1.heartbeat(
    p_process uuid, p_dispatches boolean, p_has_room boolean, p_waiting int, p_lease_s float8, p_dead_after_s float8)
RETURNS TABLE (kind text, shard smallint, id uuid, runs bigint)
LANGUAGE plpgsql VOLATILE AS $fn$
#variable_conflict use_column
BEGIN
    UPDATE forebay.process
       SET heartbeat_at = clock_timestamp(), dispatching = p_dispatches, has_room = p_has_room, waiting_runs = p_waiting
     WHERE process.id = p_process AND process.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'declared_dead', NULL::smallint, p_process, NULL::bigint;
        RETURN;
    END IF;
    IF p_dispatches THEN
        RETURN QUERY
        WITH fair AS MATERIALIZED (
            SELECT ceil(forebay.shards()::numeric / greatest(1, (
                SELECT count(*) FROM forebay.process
                 WHERE process.id <> p_process AND process.dispatching AND process.ended_at IS NULL
                   AND process.heartbeat_at > clock_timestamp() - make_interval(secs => p_lease_s)
                ) + 1))::int AS share),
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
               AND process.heartbeat_at > clock_timestamp() - make_interval(secs => p_lease_s))
        SELECT 'claim', lease.shard, NULL::uuid, NULL::bigint
          FROM forebay.shard_owner lease CROSS JOIN with_room me
         WHERE me.id = p_process AND lease.shard % me.many = me.place
           AND NOT EXISTS (SELECT 1 FROM with_room roomy WHERE roomy.id = lease.owner);
    END IF;
    RETURN QUERY
    SELECT 'waiting', NULL::smallint, NULL::uuid, coalesce(sum(process.waiting_runs), 0)::bigint FROM forebay.process
     WHERE process.ended_at IS NULL AND process.heartbeat_at > clock_timestamp() - make_interval(secs => p_lease_s);
    RETURN QUERY
    SELECT CASE WHEN request.ends THEN 'cancel' ELSE 'wake' END, NULL::smallint, request.execution_id, NULL::bigint
      FROM forebay.run_request request
     WHERE request.owner = p_process AND (request.ends OR request.wake_at <= clock_timestamp())
     -- Requests to wake come first: the run reads them soon, and then they make room for the others.
     ORDER BY request.ends LIMIT 2000;
    RETURN QUERY
    SELECT 'dead', NULL::smallint, process.id, NULL::bigint FROM forebay.process
     WHERE process.id <> p_process AND (process.ended_at > clock_timestamp() - interval '1 minute'
           OR (process.ended_at IS NULL
               AND process.heartbeat_at < clock_timestamp() - make_interval(secs => p_dead_after_s)))
     LIMIT 100;
END $fn$;
