-- The judge's log, written by triggers inside the transactions that it judges. `seq` is the order of the entries. A
-- freed slot is recorded before the commit that frees it, so every later use of the slot has a higher `seq`.
CREATE TABLE chaos_log (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    what text NOT NULL,
    id uuid,
    workspace uuid,
    definition uuid,
    key text,
    name text,
    number int,
    other int,
    owner uuid
);
-- The process id of each start of a process, by the `application_name` of its sessions.
CREATE TABLE chaos_process (id uuid PRIMARY KEY, name text NOT NULL);

CREATE FUNCTION chaos_slot() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.stage = 5 AND (TG_OP = 'DELETE' OR NEW.stage <> 5) THEN
        INSERT INTO chaos_log (what, id, workspace, definition, key)
        VALUES ('freed', OLD.id, OLD.workspace_id, OLD.workflow_definition_id, OLD.concurrency_key);
    ELSIF TG_OP <> 'DELETE' AND NEW.stage = 5 AND (TG_OP = 'INSERT' OR OLD.stage <> 5) THEN
        INSERT INTO chaos_log (what, id, workspace, definition, key)
        VALUES ('taken', NEW.id, NEW.workspace_id, NEW.workflow_definition_id, NEW.concurrency_key);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_slot AFTER UPDATE OF stage ON execution_queue
    FOR EACH ROW WHEN ((OLD.stage = 5) <> (NEW.stage = 5)) EXECUTE FUNCTION chaos_slot();
CREATE TRIGGER chaos_slot_inserted AFTER INSERT ON execution_queue
    FOR EACH ROW WHEN (NEW.stage = 5) EXECUTE FUNCTION chaos_slot();
CREATE TRIGGER chaos_slot_deleted AFTER DELETE ON execution_queue
    FOR EACH ROW WHEN (OLD.stage = 5) EXECUTE FUNCTION chaos_slot();

-- An attempt that was counted. Attempts are logged, because the item itself may be deleted before the harness reads it.
CREATE FUNCTION chaos_attempt() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO chaos_log (what, id, number) VALUES ('attempt', NEW.id, NEW.attempt_count);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_attempt AFTER UPDATE OF attempt_count ON execution_queue
    FOR EACH ROW WHEN (OLD.attempt_count < NEW.attempt_count) EXECUTE FUNCTION chaos_attempt();

-- The life of an execution: begun, owned by another process, ended. Also the changes that must never happen: back to
-- PENDING (rewound), changed after its end (revived), or written by a process that does not own it (zombie). A run of a
-- remote engine is its own owner, whichever process writes for it. A child belongs to its root's owner.
CREATE FUNCTION chaos_life() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    holder uuid := CASE WHEN OLD.status = 'RUNNING' AND (NEW.completed_at IS NOT NULL OR NEW.last_seq <> OLD.last_seq)
                        THEN CASE WHEN OLD.owner IS NULL AND OLD.root <> OLD.id
                                  THEN (SELECT r.owner FROM workflow_execution r WHERE r.id = OLD.root)
                                  ELSE OLD.owner END END;
BEGIN
    IF holder <> OLD.id AND holder::text IS DISTINCT FROM OLD.engine_run_id
       AND (SELECT p.name FROM chaos_process p WHERE p.id = holder)
           IS DISTINCT FROM current_setting('application_name') THEN
        INSERT INTO chaos_log (what, id, name) VALUES ('zombie', OLD.id, current_setting('application_name'));
    END IF;
    IF NEW.status = OLD.status AND NEW.owner IS NOT DISTINCT FROM OLD.owner THEN
        RETURN NULL;
    END IF;
    INSERT INTO chaos_log (what, id, workspace, owner, name)
    VALUES (CASE WHEN OLD.completed_at IS NOT NULL THEN 'revived'
                 WHEN NEW.completed_at IS NOT NULL THEN 'ended'
                 WHEN NEW.status = OLD.status THEN 'owned'
                 WHEN NEW.status = 'RUNNING' THEN 'begun'
                 ELSE 'rewound' END, NEW.id, NEW.workspace_id, NEW.owner, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_life AFTER UPDATE OF status, owner, last_seq ON workflow_execution
    FOR EACH ROW WHEN (OLD.status <> NEW.status OR OLD.owner IS DISTINCT FROM NEW.owner OR OLD.last_seq <> NEW.last_seq)
    EXECUTE FUNCTION chaos_life();

CREATE FUNCTION chaos_limit() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_TABLE_NAME = 'workspace' THEN
        INSERT INTO chaos_log (what, id, name, number, other)
        VALUES ('workspace', NEW.id, NEW.tier, NEW.limit_override, (NEW.paused OR NEW.deleted_at IS NOT NULL)::int);
    ELSIF TG_TABLE_NAME = 'workflow_definition' THEN
        INSERT INTO chaos_log (what, id, number, other)
        VALUES ('definition', NEW.id, CASE WHEN NEW.status = 'ACTIVE' THEN NEW.concurrency ELSE 0 END,
                NEW.key_concurrency);
    ELSE
        INSERT INTO chaos_log (what, name, number) VALUES ('tier', NEW.name, NEW.max_running);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_limit AFTER INSERT OR UPDATE ON workspace FOR EACH ROW EXECUTE FUNCTION chaos_limit();
CREATE TRIGGER chaos_limit AFTER INSERT OR UPDATE ON workflow_definition FOR EACH ROW EXECUTE FUNCTION chaos_limit();
CREATE TRIGGER chaos_limit AFTER INSERT OR UPDATE ON tier FOR EACH ROW EXECUTE FUNCTION chaos_limit();
INSERT INTO chaos_log (what, name, number) SELECT 'tier', name, max_running FROM tier;

CREATE FUNCTION chaos_register() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO chaos_process (id, name) VALUES (NEW.id, current_setting('application_name'));
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_register AFTER INSERT ON process FOR EACH ROW EXECUTE FUNCTION chaos_register();
