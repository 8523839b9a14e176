-- Events: appended in order, folded into jobs in the writer's own transaction, and never changed.

-- The types that a binding of this event may have: its own, and every prefix of it.
CREATE OR REPLACE FUNCTION fb_event_types_1(p_type text) RETURNS text[] LANGUAGE sql IMMUTABLE AS $fn$
    SELECT p_type || coalesce(array_agg(array_to_string(parts[1:n], '.') || '.*'), '{}')
      FROM (SELECT string_to_array(p_type, '.') AS parts) p, generate_series(1, least(cardinality(parts) - 1, 16)) n
$fn$;

-- The binding of an event, if it has one: the workspace's own before the platform's, exact before prefix, the longer first.
-- One of a deleted workspace binds nothing.
CREATE OR REPLACE FUNCTION fb_binding_1(p_type text, p_workspace uuid) RETURNS uuid LANGUAGE sql STABLE AS $fn$
    SELECT b.id FROM event_binding b
     WHERE b.event_type = ANY (fb_event_types_1(p_type))
       AND (b.workspace_id IS NULL
            OR b.workspace_id = p_workspace
               AND EXISTS (SELECT 1 FROM workspace w WHERE w.id = b.workspace_id AND w.deleted_at IS NULL))
     ORDER BY b.workspace_id IS NULL, b.event_type <> p_type, length(b.event_type) DESC LIMIT 1
$fn$;

-- Types that make a job although nobody bound them. Every binding that somebody made goes before these.
CREATE OR REPLACE FUNCTION fb_built_in_1() RETURNS TABLE (id uuid, event_type text, lease_s int) LANGUAGE sql IMMUTABLE AS $fn$
    SELECT '00000000-0000-0000-0000-000000000001'::uuid, 'organization.bootstrap.initiated', 900
$fn$;

-- Does an event of this type and workspace make a job?
CREATE OR REPLACE FUNCTION fb_is_bound_1(p_type text, p_workspace uuid) RETURNS boolean LANGUAGE sql STABLE AS $fn$
    SELECT fb_binding_1(p_type, p_workspace) IS NOT NULL OR EXISTS (SELECT 1 FROM fb_built_in_1() built WHERE built.event_type = p_type)
$fn$;

-- Before an insert: the event notes whether it is bound, so that one that makes no job says so. Runs with its owner's rights: who may
-- insert an event needs no right on bindings.
CREATE OR REPLACE FUNCTION fb_event_bound_1() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $fn$
BEGIN
    NEW.bound := fb_is_bound_1(NEW.event_type, NEW.workspace_id);
    RETURN NEW;
END $fn$;

DO $do$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = 'domain_events'::regclass AND tgname = 'forebay_bound') THEN
        CREATE TRIGGER forebay_bound BEFORE INSERT ON domain_events
            FOR EACH ROW WHEN (NEW.stream_type <> 'workflow_queue') EXECUTE FUNCTION fb_event_bound_1();
    END IF;
END $do$;

-- Folds one bound event into its job. Without a binding, as of a built-in type, it is a job for workers outside. Repeatable: an event makes one job.
CREATE OR REPLACE FUNCTION fb_project_1(p_event domain_events, p_binding uuid) RETURNS void LANGUAGE plpgsql AS $fn$
DECLARE
    new_id uuid := gen_random_uuid();
BEGIN
    IF EXISTS (SELECT 1 FROM workflow_queue_job j
                WHERE j.event_id = p_event.id AND j.event_workspace_id IS NOT DISTINCT FROM p_event.workspace_id) THEN
        RETURN;
    END IF;
    INSERT INTO workflow_queue_job (id, event_id, event_workspace_id, workspace_id, binding_id, version, lease_s, pending_since, due_at)
    SELECT new_id, p_event.id, p_event.workspace_id, (SELECT w.id FROM workspace w WHERE w.id = p_event.workspace_id), b.id, 0, coalesce(b.lease_s, 900), now(),
           CASE WHEN b.workflow_definition_id IS NOT NULL THEN now() END
      FROM (SELECT 1) one LEFT JOIN event_binding b ON b.id = p_binding;
    INSERT INTO workflow_queue_projection (id, event_id, event_type, event_data, stream_id, stream_type)
    VALUES (new_id, p_event.id, p_event.event_type, p_event.event_data, p_event.stream_id, p_event.stream_type);
END $fn$;

-- Is an error of this SQLSTATE (or a text that begins with one) worth repeating as it is? The classes are those of store::Error::Unavailable.
CREATE OR REPLACE FUNCTION fb_is_transient_1(p_state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $fn$
    SELECT left(p_state, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
$fn$;

-- After an insert, in the same transaction. An error that repeating cannot help is this event's: it is stored on it, and the insert stands.
-- A transient one (a lock timeout, a deadlock, a full disk) is raised: the event is not stored, and its writer repeats the insert.
--
-- Runs with its owner's rights: who may insert an event needs no right on jobs.
CREATE OR REPLACE FUNCTION fb_event_added() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $fn$
BEGIN
    IF NOT fb_is_bound_1(NEW.event_type, NEW.workspace_id) THEN
        RETURN NULL;
    END IF;
    -- The statement that inserted the event also made its binding: only now it is seen.
    IF NEW.bound IS NOT TRUE THEN
        UPDATE domain_events SET bound = true WHERE sequence = NEW.sequence;
    END IF;
    BEGIN
        PERFORM fb_project_1(NEW, fb_binding_1(NEW.event_type, NEW.workspace_id));
    EXCEPTION
        WHEN OTHERS THEN
            IF fb_is_transient_1(SQLSTATE) THEN
                RAISE;
            END IF;
            UPDATE domain_events SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
             WHERE sequence = NEW.sequence;
    END;
    RETURN NULL;
END $fn$;

-- The queue's own stream is written by the queue: a fact that nobody lived would be rebuilt into a row. The queue writes facts in a trigger
-- that runs as the owner; a trigger of somebody else, on a temporary table for one, runs as somebody else. So this one must not run with
-- its owner's rights.
CREATE OR REPLACE FUNCTION fb_fact_guard() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $fn$
BEGIN
    IF pg_trigger_depth() < 2
       OR NOT pg_has_role(current_user, (SELECT own.relowner FROM pg_class own WHERE own.oid = TG_RELID), 'MEMBER') THEN
        RAISE EXCEPTION 'the stream type workflow_queue is the queue''s own: choose another'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'own_stream';
    END IF;
    RETURN NEW;
END $fn$;

-- An event happened: only how its handling went may change.
CREATE OR REPLACE FUNCTION fb_event_guard() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
    RAISE EXCEPTION 'domain events are only ever appended: say what is new in another one'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $fn$;

-- The event that a job is about: of this id and workspace. Where no workspace is known (a row that somebody inserted, facts of builds before
-- this one) it is nobody's event of that id, else the first, and rather one of the same stream and type.
CREATE OR REPLACE FUNCTION fb_event_of_1(p_id uuid, p_workspace uuid, p_stream uuid, p_stream_type text, p_type text)
RETURNS SETOF domain_events LANGUAGE sql STABLE AS $fn$
    SELECT event.* FROM domain_events event
     WHERE event.id = p_id AND (p_workspace IS NULL OR event.workspace_id = p_workspace)
     ORDER BY event.workspace_id IS DISTINCT FROM p_workspace,
              (event.stream_id, event.stream_type, event.event_type) IS DISTINCT FROM (p_stream, p_stream_type, p_type), event.sequence
     LIMIT 1
$fn$;

-- The id that an event has whose id the service derives: the same for the same seed, and known to nobody who knows the seed alone.
CREATE OR REPLACE FUNCTION fb_event_id_1(p_workspace uuid, p_seed uuid) RETURNS uuid LANGUAGE sql STABLE AS $fn$
    SELECT overlay(overlay(substr(encode(
               sha256(s.secret || coalesce(uuid_send(p_workspace), '') || uuid_send(p_seed)), 'hex'), 1, 32)
               PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid
      FROM event_secret s
$fn$;

-- Appends events in the order given, all or none. Repeatable by id: same id and content is there already (`added` false).
-- p_derived: the id given is only the seed of the event's own (fb_event_id_1). Ids and streams are a workspace's (null: nobody's).
-- p_expected is the version that its stream must be at (0: there is none yet), null for whatever it is at; later events of the same
-- stream in one call follow. A version that is not met, or an id with other content, raises (version_conflict, id_conflict).
CREATE OR REPLACE FUNCTION fb_append_2(
    p_ids uuid[], p_derived boolean[], p_workspaces uuid[], p_streams uuid[], p_stream_types text[], p_expected int[], p_types text[],
    p_data jsonb[], p_metadata jsonb[])
RETURNS TABLE (ord bigint, id uuid, added boolean, sequence bigint, version int, created timestamptz, bound boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '2s'
AS $fn$
#variable_conflict use_column
DECLARE
    t record;
    v_id uuid;
    v_old domain_events;
    v_latest int;
BEGIN
    -- Streams are appended to one at a time, in one order for all calls.
    PERFORM pg_advisory_xact_lock(7003, s.key) FROM (
        SELECT DISTINCT hashtext(concat_ws('/', t.workspace, t.stream, t.type)) AS key
          FROM unnest(p_workspaces, p_streams, p_stream_types) AS t(workspace, stream, type)
         ORDER BY 1) s;
    FOR t IN SELECT * FROM unnest(p_ids, p_derived, p_workspaces, p_streams, p_stream_types, p_expected, p_types, p_data, p_metadata)
                WITH ORDINALITY AS t(id, derived, workspace, stream, stream_type, expected, type, data, metadata, ord)
    LOOP
        v_id := CASE WHEN t.derived THEN fb_event_id_1(t.workspace, t.id) ELSE t.id END;
        SELECT * INTO v_old FROM domain_events e WHERE e.id = v_id AND e.workspace_id IS NOT DISTINCT FROM t.workspace;
        IF NOT FOUND AND t.derived THEN
            -- A build before this one took the seed for the id; a crash since then must not repeat the event.
            SELECT * INTO v_old FROM domain_events e
             WHERE e.id = t.id AND e.workspace_id IS NOT DISTINCT FROM t.workspace AND e.stream_id = t.stream
               AND e.stream_type = t.stream_type AND e.event_type = t.type AND e.event_data = t.data;
        END IF;
        IF FOUND THEN
            IF (v_old.stream_id, v_old.stream_type, v_old.event_type, v_old.event_data)
               IS DISTINCT FROM (t.stream, t.stream_type, t.type, t.data) THEN
                RAISE EXCEPTION 'event %: this id was used with other content', t.ord - 1
                    USING ERRCODE = 'unique_violation', CONSTRAINT = 'id_conflict';
            END IF;
            RETURN QUERY SELECT t.ord, v_old.id, false, v_old.sequence, v_old.stream_version, v_old.created_at, v_old.bound;
            CONTINUE;
        END IF;
        v_latest := fb_stream_version_1(t.workspace, t.stream, t.stream_type);
        IF t.expected <> v_latest THEN
            RAISE EXCEPTION 'event %: its stream is at version %, not %', t.ord - 1, v_latest, t.expected
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'version_conflict';
        END IF;
        RETURN QUERY
        INSERT INTO domain_events AS e (id, workspace_id, stream_id, stream_type, stream_version, event_type, event_data, event_metadata)
        VALUES (v_id, t.workspace, t.stream, t.stream_type, v_latest + 1, t.type, t.data, coalesce(t.metadata, '{}'))
        RETURNING t.ord, e.id, true, e.sequence, e.stream_version, e.created_at, e.bound;
    END LOOP;
END $fn$;

-- The version that a workspace's stream (null: nobody's) is at, 0 without one. Two probes of the index: IS NOT DISTINCT FROM would read the
-- whole stream.
CREATE OR REPLACE FUNCTION fb_stream_version_1(p_workspace uuid, p_stream uuid, p_stream_type text) RETURNS int LANGUAGE sql STABLE AS $fn$
    SELECT coalesce(
        CASE WHEN p_workspace IS NULL
             THEN (SELECT e.stream_version FROM domain_events e
                    WHERE e.stream_id = p_stream AND e.stream_type = p_stream_type AND e.workspace_id IS NULL
                    ORDER BY e.workspace_id DESC, e.stream_version DESC LIMIT 1)
             ELSE (SELECT e.stream_version FROM domain_events e
                    WHERE e.stream_id = p_stream AND e.stream_type = p_stream_type AND e.workspace_id = p_workspace
                    ORDER BY e.stream_version DESC LIMIT 1) END, 0)
$fn$;

-- Folds an event again whose handling failed; answers whether that went well this time (null: it had not failed). One that is
-- bound no more has nothing left to go wrong. A transient error is raised, and the stored one stays.
CREATE OR REPLACE FUNCTION fb_event_retry_2(p_sequence bigint) RETURNS boolean LANGUAGE plpgsql AS $fn$
DECLARE
    e domain_events;
BEGIN
    SELECT * INTO e FROM domain_events d WHERE d.sequence = p_sequence AND d.processing_error IS NOT NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    BEGIN
        IF fb_is_bound_1(e.event_type, e.workspace_id) THEN
            PERFORM fb_project_1(e, fb_binding_1(e.event_type, e.workspace_id));
        END IF;
    EXCEPTION
        WHEN OTHERS THEN
            IF fb_is_transient_1(SQLSTATE) THEN
                RAISE;
            END IF;
            UPDATE domain_events SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
             WHERE sequence = p_sequence;
            RETURN false;
    END;
    UPDATE domain_events SET processing_error = NULL, processing_failed_at = NULL WHERE sequence = p_sequence;
    RETURN true;
END $fn$;

-- Folds again the events whose stored error is transient: builds before this one stored those too. The one that was tried longest ago comes
-- first, p_limit at most; answers how many were settled. Another transient error moves its event to the end and ends the call, so that one
-- lock is waited for once a pass and no event keeps the others from their turn.
CREATE OR REPLACE FUNCTION fb_events_fold_1(p_limit int) RETURNS int LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '2s' AS $fn$
DECLARE
    v_event record;
    v_done int := 0;
BEGIN
    -- The condition is the index's (domain_events_to_fold), word for word.
    FOR v_event IN SELECT e.sequence FROM domain_events e
                    WHERE left(e.processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
                    ORDER BY e.processing_failed_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        BEGIN
            PERFORM fb_event_retry_2(v_event.sequence);
            v_done := v_done + 1;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT fb_is_transient_1(SQLSTATE) THEN
                    RAISE;
                END IF;
                UPDATE domain_events SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
                 WHERE sequence = v_event.sequence;
                EXIT;
        END;
    END LOOP;
    RETURN v_done;
END $fn$;
