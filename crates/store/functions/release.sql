-- Drops the functions of releases before p_own that no process has used for p_unused_s, and returns the numbers of
-- those releases. Drops without CASCADE: if somebody made an object that depends on such a function, the release's
-- functions stay. If a process of a dropped release comes back, it creates its functions again (store::process).
CREATE OR REPLACE FUNCTION forebay_r1.drop_unused_releases(p_own int, p_unused_s float8) RETURNS SETOF int
LANGUAGE plpgsql VOLATILE AS $fn$
DECLARE
    v_unused_since CONSTANT timestamptz := clock_timestamp() - make_interval(secs => p_unused_s);
    v_release record;
    v_function record;
BEGIN
    -- This is the lock of `migrate`, so no process creates functions meanwhile.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('forebay.migrate', 0)) THEN
        RETURN;
    END IF;
    FOR v_release IN
        SELECT old.number, 'forebay_r' || old.number AS schema FROM forebay.release old
         WHERE old.number < p_own AND old.made_at < v_unused_since
           AND NOT EXISTS (SELECT 1
                             FROM forebay.process
                            WHERE process.release = old.number AND process.heartbeat_at >= v_unused_since)
         ORDER BY old.number
    LOOP
        BEGIN
            FOR v_function IN
                SELECT own.oid::regprocedure AS name FROM pg_catalog.pg_proc own
                 WHERE own.pronamespace = to_regnamespace(v_release.schema)
            LOOP
                EXECUTE format('DROP ROUTINE %s RESTRICT', v_function.name);
            END LOOP;
            EXECUTE format('DROP SCHEMA IF EXISTS %I RESTRICT', v_release.schema);
            DELETE FROM forebay.release old WHERE old.number = v_release.number;
            RETURN NEXT v_release.number;
        EXCEPTION
            -- If one schema cannot be dropped, the others are still dropped.
            WHEN OTHERS THEN
                RAISE WARNING 'failed to drop the unused schema %: %', v_release.schema, SQLERRM;
        END;
    END LOOP;
END $fn$;

-- A place for changes of rows that a release needs when its protocol takes effect. Every shard is locked at that time,
-- so no claim is in progress. This release changes nothing.
CREATE OR REPLACE FUNCTION forebay_r1.change_rows_for_protocol(p_protocol int) RETURNS void
LANGUAGE plpgsql VOLATILE AS $fn$
BEGIN
    NULL;
END $fn$;

-- The living processes of releases before p_release, as text; null if there are none.
CREATE OR REPLACE FUNCTION forebay_r1.older_processes(p_release int, p_dead_after_s float8) RETURNS text
LANGUAGE sql VOLATILE AS $fn$
    SELECT string_agg(format('%s (pid %s, release %s)', older.host, older.pid, older.release), ', '
                      ORDER BY older.started_at)
      FROM forebay.process older
     WHERE older.release < p_release AND older.ended_at IS NULL
       AND older.heartbeat_at > clock_timestamp() - make_interval(secs => p_dead_after_s)
$fn$;

-- Raises the protocol to p_protocol if no process of a release before p_release is alive. Returns null once the
-- protocol is that high, else the older processes that are alive. It locks every shard, so no claim is in progress. It
-- waits at most 100 ms for each lock, and about 500 ms for all. If that fails, it raises lock_not_available and holds
-- no lock; the caller tries again later.
CREATE OR REPLACE FUNCTION forebay_r1.raise_protocol(p_protocol int, p_release int, p_dead_after_s float8) RETURNS text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '100ms' AS $fn$
DECLARE
    v_give_up_at CONSTANT timestamptz := clock_timestamp() + interval '500 milliseconds';
    v_older text := forebay_r1.older_processes(p_release, p_dead_after_s);
BEGIN
    IF v_older IS NOT NULL THEN
        RETURN v_older;
    END IF;
    FOR v_shard IN 0..63 LOOP
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), v_shard);
        IF clock_timestamp() > v_give_up_at THEN
            RAISE lock_not_available USING MESSAGE = 'failed to lock all shards in time';
        END IF;
    END LOOP;
    -- Checked again, because an older process may have started meanwhile. If one starts later, its claims are refused.
    v_older := forebay_r1.older_processes(p_release, p_dead_after_s);
    IF v_older IS NULL AND (SELECT number FROM forebay.protocol) < p_protocol THEN
        PERFORM forebay_r1.change_rows_for_protocol(p_protocol);
        UPDATE forebay.protocol SET number = p_protocol WHERE number < p_protocol;
    END IF;
    RETURN v_older;
END $fn$;
