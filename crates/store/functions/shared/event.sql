-- Events: appended in order, folded into jobs in the writer's own transaction, and never changed.

-- The types that a binding of this event may have: its own, and every prefix of it.
CREATE OR REPLACE FUNCTION forebay.types_of_event(p_type text) RETURNS text[] LANGUAGE sql IMMUTABLE AS $fn$
    SELECT p_type || coalesce(array_agg(array_to_string(parts[1:length], '.') || '.*'), '{}')
      FROM (SELECT string_to_array(p_type, '.') AS parts) split,
           generate_series(1, least(cardinality(parts) - 1, 16)) length
$fn$;

-- The binding of an event, if it has one: the workspace's own before the platform's, exact before prefix, the longer
-- first. One of a deleted workspace binds nothing.
CREATE OR REPLACE FUNCTION forebay.binding_of(p_type text, p_workspace uuid) RETURNS uuid LANGUAGE sql STABLE AS $fn$
    SELECT binding.id FROM forebay.event_binding binding
     WHERE binding.event_type = ANY (forebay.types_of_event(p_type))
       AND (binding.workspace_id IS NULL
            OR binding.workspace_id = p_workspace
               AND EXISTS (SELECT 1
                             FROM forebay.workspace
                            WHERE workspace.id = binding.workspace_id AND workspace.deleted_at IS NULL))
     ORDER BY binding.workspace_id IS NULL, binding.event_type <> p_type, length(binding.event_type) DESC LIMIT 1
$fn$;

-- Types that make a job although nobody bound them. Every binding that somebody made goes before these.
CREATE OR REPLACE FUNCTION forebay.built_in_bindings() RETURNS TABLE (id uuid, event_type text, lease_s int)
LANGUAGE sql IMMUTABLE AS $fn$
    SELECT '00000000-0000-0000-0000-000000000001'::uuid, 'organization.bootstrap.initiated', forebay.usual_job_lease_s()
$fn$;

-- Does an event of this type and workspace make a job?
CREATE OR REPLACE FUNCTION forebay.is_bound(p_type text, p_workspace uuid) RETURNS boolean LANGUAGE sql STABLE AS $fn$
    SELECT forebay.binding_of(p_type, p_workspace) IS NOT NULL
           OR EXISTS (SELECT 1 FROM forebay.built_in_bindings() built WHERE built.event_type = p_type)
$fn$;

-- Before an insert: the event notes whether it is bound, so that one that makes no job says so. Runs with its owner's
-- rights: who may insert an event needs no right on bindings.
CREATE OR REPLACE FUNCTION forebay.event_bound() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
    NEW.bound := forebay.is_bound(NEW.event_type, NEW.workspace_id);
    RETURN NEW;
END $fn$;

-- Folds one bound event into its job. Without a binding, as of a built-in type, it is a job for workers outside.
-- Repeatable: an event makes one job.
CREATE OR REPLACE FUNCTION forebay.make_job(p_event public.domain_events, p_binding uuid) RETURNS void
LANGUAGE plpgsql AS $fn$
DECLARE
    new_id uuid := gen_random_uuid();
BEGIN
    IF EXISTS (SELECT 1 FROM forebay.workflow_queue_job job
                WHERE job.event_id = p_event.id
                  AND job.event_workspace_id IS NOT DISTINCT FROM p_event.workspace_id) THEN
        RETURN;
    END IF;
    INSERT INTO forebay.workflow_queue_job (id, event_id, event_workspace_id, workspace_id, binding_id, version,
                                            lease_s, pending_since, due_at)
    SELECT new_id, p_event.id, p_event.workspace_id,
           (SELECT workspace.id FROM forebay.workspace WHERE workspace.id = p_event.workspace_id), binding.id, 0,
           coalesce(binding.lease_s, forebay.usual_job_lease_s()), now(),
           CASE WHEN binding.workflow_definition_id IS NOT NULL THEN now() END
      FROM (SELECT 1) one LEFT JOIN forebay.event_binding binding ON binding.id = p_binding;
    INSERT INTO public.workflow_queue_projection (id, event_id, event_type, event_data, stream_id, stream_type)
    VALUES (new_id, p_event.id, p_event.event_type, p_event.event_data, p_event.stream_id, p_event.stream_type);
END $fn$;

-- Is an error of this SQLSTATE (or a text that begins with one) worth repeating as it is? The classes are those of
-- store::Error::Unavailable.
CREATE OR REPLACE FUNCTION forebay.is_transient(p_state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $fn$
    SELECT left(p_state, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
$fn$;

-- After an insert, in the same transaction. An error that repeating cannot help is this event's: it is stored on it,
-- and the insert stands. A transient one (a lock timeout, a deadlock, a full disk) is raised: the event is not stored,
-- and its writer repeats the insert.
--
-- Runs with its owner's rights: who may insert an event needs no right on jobs.
CREATE OR REPLACE FUNCTION forebay.event_added() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
    IF NOT forebay.is_bound(NEW.event_type, NEW.workspace_id) THEN
        RETURN NULL;
    END IF;
    -- The statement that inserted the event also made its binding: only now it is seen.
    IF NEW.bound IS NOT TRUE THEN
        UPDATE public.domain_events SET bound = true WHERE sequence = NEW.sequence;
    END IF;
    BEGIN
        PERFORM forebay.make_job(NEW, forebay.binding_of(NEW.event_type, NEW.workspace_id));
    EXCEPTION
        WHEN OTHERS THEN
            IF forebay.is_transient(SQLSTATE) THEN
                RAISE;
            END IF;
            UPDATE public.domain_events
               SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
             WHERE sequence = NEW.sequence;
    END;
    RETURN NULL;
END $fn$;

-- After an insert: notes an event that somebody may wait for, one row however many do. Runs with its owner's rights:
-- who may append events needs no right on waits.
CREATE OR REPLACE FUNCTION forebay.event_waited() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $fn$
BEGIN
    -- Whoever sees the waits of the moment at which its transaction began cannot tell: the event is noted, and judged
    -- for those of then.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') OR EXISTS (
        SELECT 1 FROM forebay.workflow_execution_ask wait
         WHERE wait.workspace_id = NEW.workspace_id AND wait.event_type = NEW.event_type AND wait.status = 'OPEN') THEN
        INSERT INTO forebay.workflow_execution_candidate (workspace_id, event_id) VALUES (NEW.workspace_id, NEW.id);
        PERFORM forebay.notify_change();
    END IF;
    RETURN NULL;
END $fn$;

-- The queue's own stream is written by the queue: a fact that nobody lived would be rebuilt into a row. The queue
-- writes facts in a trigger that runs as the owner; a trigger of somebody else, on a temporary table for one, runs as
-- somebody else. So this one must not run with its owner's rights.
CREATE OR REPLACE FUNCTION forebay.fact_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
    IF pg_trigger_depth() < 2
       OR NOT pg_has_role(
           current_user, (SELECT own.relowner FROM pg_catalog.pg_class own WHERE own.oid = TG_RELID), 'MEMBER') THEN
        RAISE EXCEPTION 'the stream type workflow_queue is the queue''s own: choose another'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'own_stream';
    END IF;
    RETURN NEW;
END $fn$;

-- An event happened: only how its handling went may change.
CREATE OR REPLACE FUNCTION forebay.event_guard() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
    RAISE EXCEPTION 'domain events are only ever appended: say what is new in another one'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $fn$;

-- The event that a job is about: of this id and workspace. Where no workspace is known (a row that somebody inserted,
-- facts of builds before this one) it is nobody's event of that id, else the first, and rather one of the same stream
-- and type.
CREATE OR REPLACE FUNCTION forebay.event_of(p_id uuid, p_workspace uuid, p_stream uuid, p_stream_type text, p_type text)
RETURNS SETOF public.domain_events LANGUAGE sql STABLE AS $fn$
    SELECT event.* FROM public.domain_events event
     WHERE event.id = p_id AND (p_workspace IS NULL OR event.workspace_id = p_workspace)
     ORDER BY event.workspace_id IS DISTINCT FROM p_workspace,
              (event.stream_id, event.stream_type, event.event_type) IS DISTINCT FROM (p_stream, p_stream_type, p_type),
              event.sequence
     LIMIT 1
$fn$;
