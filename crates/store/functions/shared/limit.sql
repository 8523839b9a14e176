-- A change of a limit waits for the claims of its shard, and later claims wait for the change. So a claim either
-- commits before the new limit or has read it. The shard is taken from OLD: in NEW, generated columns are null in a
-- BEFORE trigger, and a lock on null locks nothing.
CREATE OR REPLACE FUNCTION forebay.lock_limit_change() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
    IF TG_TABLE_NAME = 'workspace' THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), OLD.shard::int);
    ELSIF TG_TABLE_NAME = 'workflow_definition' THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), forebay.shard_of(OLD.workspace_id));
    ELSE
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), shard)
          FROM generate_series(0, forebay.shards() - 1) AS shard;
    END IF;
    RETURN NEW;
END $fn$;
