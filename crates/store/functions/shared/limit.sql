-- Whatever changes a limit waits for the claims of its shard, and they for it: a claim commits either before the new
-- limit or having read it. OLD, not NEW: generated columns are null in a BEFORE trigger, and a lock on null locks
-- nothing.
CREATE OR REPLACE FUNCTION forebay.fence() RETURNS trigger LANGUAGE plpgsql AS $fn$
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
