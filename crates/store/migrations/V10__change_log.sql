-- What changed, in the order in which it can be told: read by the feed of every server, and pruned behind it.

-- Unlogged: a crash of the database empties it, and whoever follows it is then told to look for itself. A cursor is
-- (xid, seq): a sequence number alone is drawn before its commit, so a reader of it misses what commits late.
CREATE UNLOGGED TABLE change_log (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Drawn far apart: the changes of one entry are numbered in between.
    seq bigint GENERATED ALWAYS AS IDENTITY (START 1048576 INCREMENT 1048576),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic text NOT NULL CHECK (topic = ANY (ARRAY['execution', 'nodes', 'projection'])),
    op text NOT NULL CHECK (op = ANY (ARRAY['INSERT', 'UPDATE', 'DELETE'])),
    -- The rows that one statement changed in the same way, and whose each is; null: no workspace's, only a root key may see it.
    refs uuid[] NOT NULL,
    workspaces uuid[] NOT NULL,
    -- What these executions became; null if only nodes of theirs have moved.
    status text,
    -- One row of the projection, all of it, as this change left it and as it found it.
    record jsonb,
    old_record jsonb,
    PRIMARY KEY (xid, seq),
    CHECK (topic <> 'projection' OR cardinality(refs) = 1)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- How far the log was pruned; one row. Unlogged too: gone with the log after a crash, which is how a reader knows.
CREATE UNLOGGED TABLE change_log_kept (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Of this transaction and older ones entries may be missing.
    gone xid8 NOT NULL
);

-- Runs as its owner: who may write the table need have no right on the log. Tables of a session come last in its path, so that
-- nobody puts one of that name before ours.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
CREATE FUNCTION fb_log_projection_1() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC'
AS $fn$
BEGIN
    INSERT INTO change_log (topic, op, refs, workspaces, record, old_record)
    SELECT 'projection', TG_OP, ARRAY[coalesce(NEW.id, OLD.id)],
           ARRAY[(SELECT d.workspace_id FROM domain_events d WHERE d.id = coalesce(NEW.event_id, OLD.event_id))],
           CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END, CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    -- At most one running transaction rings: NOTIFY takes a lock of the whole cluster at its commit.
    IF pg_try_advisory_xact_lock(724001) THEN
        PERFORM pg_notify('forebay_change', '');
    END IF;
    RETURN NULL;
END $fn$;

CREATE TRIGGER workflow_queue_projection_logged AFTER INSERT OR UPDATE OR DELETE ON workflow_queue_projection
    FOR EACH ROW EXECUTE FUNCTION fb_log_projection_1();

-- What the API's claim asked for: a heartbeat that says nothing else repeats it.
ALTER TABLE workflow_queue_job ADD COLUMN claim_lease_s int;
