-- Events: appended in order, folded in the writer's own transaction, and never changed. To fold an event is to make the
-- job for its binding.

-- The types under which an event of this type may be bound: the type itself, and every prefix of it (order.*).
CREATE OR REPLACE FUNCTION forebay.types_of_event(p_type text) RETURNS text[] LANGUAGE sql IMMUTABLE AS $fn$
    SELECT p_type || coalesce(array_agg(array_to_string(parts[1:length], '.') || '.*'), '{}')
      FROM (SELECT string_to_array(p_type, '.') AS parts) split,
           generate_series(1, least(cardinality(parts) - 1, 16)) length
$fn$;

-- The binding that applies to an event, if any. A binding of the workspace precedes one of the platform, an exact type
-- precedes a prefix, and a longer prefix precedes a shorter one. A binding of a deleted workspace does not apply.
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

-- Event types that make a job although no binding names them. A binding for such a type takes precedence.
CREATE OR REPLACE FUNCTION forebay.built_in_bindings() RETURNS TABLE (id uuid, event_type text, lease_s int)
LANGUAGE sql IMMUTABLE AS $fn$
    SELECT '00000000-0000-0000-0000-000000000001'::uuid, 'organization.bootstrap.initiated',
           forebay.default_job_lease_s()
$fn$;

-- Does an event of this type and workspace make a job?
CREATE OR REPLACE FUNCTION forebay.is_bound(p_type text, p_workspace uuid) RETURNS boolean LANGUAGE sql STABLE AS $fn$
    SELECT forebay.binding_of(p_type, p_workspace) IS NOT NULL
           OR EXISTS (SELECT 1 FROM forebay.built_in_bindings() built WHERE built.event_type = p_type)
$fn$;

-- Before an insert: stores on the event whether it is bound, so that an event without a job shows why. Runs with its
-- owner's rights, so inserting an event needs no right on bindings.
CREATE OR REPLACE FUNCTION forebay.set_event_bound() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
    NEW.bound := forebay.is_bound(NEW.event_type, NEW.workspace_id);
    RETURN NEW;
END $fn$;

-- Folds one bound event: makes its job. Without a binding, as for a built-in type, the job is for external workers.
-- Repeatable: an event makes one job.
CREATE OR REPLACE FUNCTION forebay.create_job(p_event public.domain_events, p_binding uuid) RETURNS void
LANGUAGE plpgsql AS $fn$
DECLARE
    v_id uuid := gen_random_uuid();
BEGIN
    IF EXISTS (SELECT 1 FROM forebay.workflow_queue_job job
                WHERE job.event_id = p_event.id
                  AND job.event_workspace_id IS NOT DISTINCT FROM p_event.workspace_id) THEN
        RETURN;
    END IF;
    INSERT INTO forebay.workflow_queue_job (id, event_id, event_workspace_id, workspace_id, binding_id, version,
                                            lease_s, pending_since, due_at)
    SELECT v_id, p_event.id, p_event.workspace_id,
           (SELECT workspace.id FROM forebay.workspace WHERE workspace.id = p_event.workspace_id), binding.id, 0,
           coalesce(binding.lease_s, forebay.default_job_lease_s()), now(),
           CASE WHEN binding.workflow_definition_id IS NOT NULL THEN now() END
      FROM (SELECT 1) one LEFT JOIN forebay.event_binding binding ON binding.id = p_binding;
    INSERT INTO public.workflow_queue_projection (id, event_id, event_type, event_data, stream_id, stream_type)
    VALUES (v_id, p_event.id, p_event.event_type, p_event.event_data, p_event.stream_id, p_event.stream_type);
END $fn$;

-- May a statement that failed with this SQLSTATE (or a text that begins with it) succeed if it is repeated unchanged?
-- The classes are those of store::Error::Unavailable.
CREATE OR REPLACE FUNCTION forebay.is_transient(p_state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $fn$
    SELECT left(p_state, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
$fn$;

-- Stores on an event why its fold failed; null means that the fold succeeded.
CREATE OR REPLACE FUNCTION forebay.set_fold_error(p_sequence bigint, p_error text) RETURNS void
LANGUAGE sql VOLATILE AS $fn$
    UPDATE public.domain_events
       SET processing_error = left(p_error, 2000),
           processing_failed_at = CASE WHEN p_error IS NOT NULL THEN clock_timestamp() END
     WHERE sequence = p_sequence
$fn$;

-- After an insert, in the same transaction: folds the event. If the fold fails with a permanent error, the error is
-- stored on the event, and the insert stays. A transient error (a lock timeout, a deadlock, a full disk) is raised.
-- Then the event is not stored, and its writer repeats the insert.
--
-- Runs with its owner's rights, so inserting an event needs no right on jobs.
CREATE OR REPLACE FUNCTION forebay.fold_new_event() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
    IF NOT forebay.is_bound(NEW.event_type, NEW.workspace_id) THEN
        RETURN NULL;
    END IF;
    -- The event's own statement also made the binding, which became visible only after set_event_bound.
    IF NEW.bound IS NOT TRUE THEN
        UPDATE public.domain_events SET bound = true WHERE sequence = NEW.sequence;
    END IF;
    BEGIN
        PERFORM forebay.create_job(NEW, forebay.binding_of(NEW.event_type, NEW.workspace_id));
    EXCEPTION
        WHEN OTHERS THEN
            IF forebay.is_transient(SQLSTATE) THEN
                RAISE;
            END IF;
            PERFORM forebay.set_fold_error(NEW.sequence, SQLSTATE || ': ' || SQLERRM);
    END;
    RETURN NULL;
END $fn$;

-- After an insert: adds one candidate row if any open wait may match the event, however many waits there are. Runs with
-- its owner's rights, so appending an event needs no right on waits.
CREATE OR REPLACE FUNCTION forebay.add_event_candidate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $fn$
BEGIN
    -- A transaction with an old snapshot cannot see newer waits. So it always adds a candidate, which is evaluated for
    -- those waits later.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') OR EXISTS (
        SELECT 1 FROM forebay.workflow_execution_wait wait
         WHERE wait.workspace_id = NEW.workspace_id AND wait.event_type = NEW.event_type AND wait.status = 'OPEN') THEN
        INSERT INTO forebay.workflow_execution_candidate (workspace_id, event_id) VALUES (NEW.workspace_id, NEW.id);
        PERFORM forebay.notify_change();
    END IF;
    RETURN NULL;
END $fn$;

-- Only Forebay writes the stream `workflow_queue`: a forged fact would become a row when the table is rebuilt. Forebay
-- writes facts in a trigger that runs with the rights of the tables' owner. If another role makes a trigger, for
-- example on a temporary table, that trigger runs with the other role's rights. To see that difference, this function
-- must not run with its owner's rights.
CREATE OR REPLACE FUNCTION forebay.fact_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
    IF pg_trigger_depth() < 2
       OR NOT pg_has_role(
           current_user, (SELECT own.relowner FROM pg_catalog.pg_class own WHERE own.oid = TG_RELID), 'MEMBER') THEN
        RAISE EXCEPTION 'the stream type workflow_queue is reserved for the queue: choose another'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'own_stream';
    END IF;
    RETURN NEW;
END $fn$;

-- An event never changes; only the result of its fold may.
CREATE OR REPLACE FUNCTION forebay.event_guard() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
    RAISE EXCEPTION 'domain events cannot be changed: append another event instead'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $fn$;

-- The event of a job: the event with this id and workspace. The workspace may be unknown, for a row that somebody
-- inserted and for facts of older builds. Then an event of no workspace with that id is preferred, then an event of the
-- same stream and type, then the first event.
CREATE OR REPLACE FUNCTION forebay.event_of(p_id uuid, p_workspace uuid, p_stream uuid, p_stream_type text, p_type text)
RETURNS SETOF public.domain_events LANGUAGE sql STABLE AS $fn$
    SELECT event.* FROM public.domain_events event
     WHERE event.id = p_id AND (p_workspace IS NULL OR event.workspace_id = p_workspace)
     ORDER BY event.workspace_id IS DISTINCT FROM p_workspace,
              (event.stream_id, event.stream_type, event.event_type) IS DISTINCT FROM (p_stream, p_stream_type, p_type),
              event.sequence
     LIMIT 1
$fn$;
