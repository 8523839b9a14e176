-- Drops the functions of releases before p_own that no process has used for p_unused_s, and answers which. Without
-- CASCADE: what somebody made to depend on them keeps them where they are. A process that comes back after all that
-- time makes its own again (store::process).
CREATE OR REPLACE FUNCTION forebay_r1.drop_unused_releases(p_own int, p_unused_s float8) RETURNS SETOF int
LANGUAGE plpgsql VOLATILE AS $fn$
DECLARE
    v_unused_since CONSTANT timestamptz := clock_timestamp() - make_interval(secs => p_unused_s);
    v_release record;
    v_function record;
BEGIN
    -- The lock of `migrate`: nobody puts functions in place meanwhile.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('forebay.migrate', 0)) THEN
        RETURN;
    END IF;
    FOR v_release IN
        SELECT old.number, 'forebay_r' || old.number AS schema FROM forebay.release old
         WHERE old.number < p_own AND old.made_at < v_unused_since
           AND NOT EXISTS (SELECT 1
                             FROM forebay.process
                            WHERE process.release = old.number AND process.seen_at >= v_unused_since)
         ORDER BY old.number
    LOOP
        BEGIN
            FOR v_function IN
                SELECT own.oid::regprocedure AS name FROM pg_catalog.pg_proc own
                 WHERE own.pronamespace = to_regnamespace(v_release.schema)
            LOOP
                EXECUTE format('DROP FUNCTION %s RESTRICT', v_function.name);
            END LOOP;
            EXECUTE format('DROP SCHEMA IF EXISTS %I RESTRICT', v_release.schema);
            DELETE FROM forebay.release old WHERE old.number = v_release.number;
            RETURN NEXT v_release.number;
        EXCEPTION
            WHEN dependent_objects_still_exist THEN
                RAISE WARNING 'the schema % is unused and cannot be dropped: %', v_release.schema, SQLERRM;
        END;
    END LOOP;
END $fn$;
