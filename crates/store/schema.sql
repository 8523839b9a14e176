-- The schema as the migrations make it, dumped by a test: UPDATE_EXPECT=1 regenerates it.
CREATE SCHEMA forebay;

CREATE SCHEMA forebay_r1;

CREATE FUNCTION forebay.backlog_room(p_workspace uuid, p_limit integer, p_arriving integer, p_keep boolean) RETURNS integer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    v_shard smallint := forebay.shard_of(p_workspace)::smallint;
    v_first bigint;
    v_last bigint;
    v_counted int;
    known record;
BEGIN
    -- Before anything is read: what arrives later is counted by those who come later.
    SELECT min(n.n), max(n.n) INTO v_first, v_last
      FROM (SELECT nextval('forebay.backlog_arrivals') AS n FROM generate_series(1, p_arriving)) n;
    SELECT b.counted, b.arrivals, b.counted_at INTO known FROM forebay.backlog b WHERE b.workspace_id = p_workspace;
    IF known.counted_at > clock_timestamp() - interval '1 minute' AND known.counted + v_last - known.arrivals <= p_limit THEN
        RETURN p_arriving;
    ELSIF known.counted >= p_limit
          AND known.counted_at > clock_timestamp() - make_interval(secs => 0.05 + p_limit / 200000.0) THEN
        RETURN 0;
    END IF;
    IF p_keep AND p_limit > 10000 THEN
        -- One counts a long line; the others go by what is known, so that it costs no more than one.
        PERFORM 1 FROM forebay.backlog b WHERE b.workspace_id = p_workspace FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND known.counted IS NOT NULL THEN
            RETURN CASE WHEN known.counted < p_limit THEN p_arriving ELSE 0 END;
        END IF;
    END IF;
    SELECT count(*) INTO v_counted FROM (
        SELECT 1 FROM forebay.execution_queue q WHERE q.shard = v_shard AND q.workspace_id = p_workspace AND q.stage = forebay.stage_ready()
        UNION ALL
        SELECT 1 FROM forebay.execution_queue q WHERE q.shard = v_shard AND q.workspace_id = p_workspace AND q.stage = forebay.stage_delayed()
        UNION ALL
        SELECT 1 FROM forebay.execution_queue q WHERE q.shard = v_shard AND q.workspace_id = p_workspace AND q.stage = forebay.stage_waits_for_key()
        UNION ALL
        SELECT 1 FROM forebay.execution_queue q WHERE q.shard = v_shard AND q.workspace_id = p_workspace AND q.stage = forebay.stage_waits_for_definition()
        LIMIT p_limit) waiting;
    IF p_keep THEN
        -- This call's own are not among the counted yet. Where less than a thousandth of the limit
        -- is left, that thousandth may arrive all the same before the next count.
        UPDATE forebay.backlog b
           SET counted = v_counted, counted_at = clock_timestamp(),
               arrivals = v_first - 1
                 + CASE WHEN v_counted < p_limit THEN greatest(p_limit / 1000 - (p_limit - v_counted), 0) ELSE 0 END
         WHERE b.ctid = (SELECT l.ctid FROM forebay.backlog l WHERE l.workspace_id = p_workspace FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN least(greatest(p_limit - v_counted, 0), p_arriving);
END $$;

CREATE FUNCTION forebay.binding_of(p_type text, p_workspace uuid) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
    SELECT b.id FROM forebay.event_binding b
     WHERE b.event_type = ANY (forebay.types_of_event(p_type))
       AND (b.workspace_id IS NULL
            OR b.workspace_id = p_workspace
               AND EXISTS (SELECT 1 FROM forebay.workspace w WHERE w.id = b.workspace_id AND w.deleted_at IS NULL))
     ORDER BY b.workspace_id IS NULL, b.event_type <> p_type, length(b.event_type) DESC LIMIT 1
$$;

CREATE FUNCTION forebay.built_in_bindings() RETURNS TABLE(id uuid, event_type text, lease_s integer)
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT '00000000-0000-0000-0000-000000000001'::uuid, 'organization.bootstrap.initiated', 900
$$;

CREATE FUNCTION forebay.caller() RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END
$$;

CREATE FUNCTION forebay.enqueue(workspace uuid, definition uuid, input jsonb DEFAULT NULL::jsonb, priority integer DEFAULT 3, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, concurrency_key text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    new_id uuid := forebay.new_id();
    answer record;
BEGIN
    -- The same forms as kernel::queue::idempotency: keys that hooks, schedules, nodes and jobs derive.
    IF idempotency_key ~ '^(hook/|schedule:|node/|event:)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}/' THEN
        RAISE EXCEPTION 'idempotency key %: this service derives keys of that form itself, choose another', quote_literal(idempotency_key)
            USING ERRCODE = 'check_violation';
    END IF;
    IF priority NOT BETWEEN 1 AND 5 THEN
        RAISE EXCEPTION 'priority % is outside 1 to 5', priority USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO answer FROM forebay.enqueue_many(
        ARRAY[new_id], ARRAY[workspace], ARRAY[definition], ARRAY[input], ARRAY[priority::smallint], ARRAY[run_at],
        ARRAY[concurrency_key], ARRAY[idempotency_key],
        ARRAY[CASE WHEN idempotency_key IS NULL THEN NULL
                   ELSE sha256(convert_to(definition::text || coalesce(input::text, ''), 'UTF8')) END],
        ARRAY['{"type": "sql"}'::jsonb], ARRAY[NULL::text], ARRAY[NULL::uuid], ARRAY[NULL::uuid], 'sql:' || forebay.caller(),
        forebay.semantics(), forebay.priority_step_ms(), NULL, false);
    IF answer.outcome IN ('accepted', 'existing') THEN
        RETURN answer.execution;
    END IF;
    RAISE EXCEPTION '%', CASE answer.outcome
        WHEN 'conflict' THEN format('idempotency key %L was used with other content', idempotency_key)
        WHEN 'draft' THEN format('definition %s is not published', definition)
        WHEN 'full' THEN format('the backlog of workspace %s is full', workspace)
        ELSE format('no definition %s in workspace %s', definition, workspace) END
        USING ERRCODE = CASE answer.outcome WHEN 'conflict' THEN 'unique_violation' WHEN 'full' THEN 'configuration_limit_exceeded'
                                       ELSE 'no_data_found' END;
END $$;

CREATE FUNCTION forebay.enqueue_many(p_ids uuid[], p_workspaces uuid[], p_definitions uuid[], p_inputs jsonb[], p_priorities smallint[], p_run_at timestamp with time zone[], p_keys text[], p_idempotency text[], p_fingerprints bytea[], p_triggers jsonb[], p_traces text[], p_versions uuid[], p_reruns uuid[], p_actor text, p_semantics integer, p_step_ms bigint, p_max_backlog integer, p_keep_count boolean) RETURNS TABLE(ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '2s'
    AS $$
#variable_conflict use_column
DECLARE
    v_accepted uuid[];
    v_refused uuid[];
    v_queued record;
    v_blocked record;
    -- One time for the whole call: items of one call go in the order of their ids, however they are joined.
    v_now timestamptz := clock_timestamp();
BEGIN
    -- What a full backlog refuses. Only workspaces with a limit pay for it.
    WITH limited AS MATERIALIZED (
        SELECT arriving.workspace_id, allowed.max_backlog, arriving.starts
          FROM (SELECT start.workspace_id, count(*)::int AS starts FROM unnest(p_workspaces) AS start(workspace_id)
                 GROUP BY start.workspace_id) arriving
          JOIN forebay.workspace known ON known.id = arriving.workspace_id
         CROSS JOIN LATERAL (SELECT coalesce(known.max_backlog, p_max_backlog,
                (SELECT tier.max_backlog FROM forebay.tier WHERE tier.name = known.tier AND p_keep_count)) AS max_backlog) allowed
         WHERE allowed.max_backlog IS NOT NULL),
    with_room AS MATERIALIZED (
        SELECT limited.workspace_id, forebay.backlog_room(limited.workspace_id, limited.max_backlog, limited.starts, p_keep_count) AS room
          FROM limited ORDER BY limited.workspace_id)
    SELECT coalesce(array_agg(start.id), '{}') INTO v_refused
      FROM (SELECT asked.id, asked.workspace_id, row_number() OVER (PARTITION BY asked.workspace_id ORDER BY asked.ord) AS place
              FROM unnest(p_ids, p_workspaces) WITH ORDINALITY AS asked(id, workspace_id, ord)) start
      JOIN with_room ON with_room.workspace_id = start.workspace_id AND start.place > with_room.room;

    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_ids, p_workspaces, p_definitions, p_inputs, p_run_at, p_priorities, p_keys,
                             p_idempotency, p_fingerprints, p_triggers, p_traces, p_versions, p_reruns) WITH ORDINALITY
            AS start(id, workspace_id, definition_id, input, run_at, priority, key, idempotency, fingerprint, trig, trace, version,
                     rerun_of, ord)),
    -- What each start means by its definition: the version it runs, and whether a limit or a pause may hold it back. A
    -- batch is mostly of one definition: it is looked up once.
    versions AS MATERIALIZED (
        SELECT meant.workspace_id, meant.definition_id, meant.version, pinned.id AS version_id, pinned.timeout_ms,
               living.concurrency IS NOT NULL OR living.status <> 'ACTIVE' AS limited
          FROM (SELECT DISTINCT asked.workspace_id, asked.definition_id, asked.version FROM asked) meant
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_definition definition
                              WHERE definition.id = meant.definition_id AND definition.workspace_id = meant.workspace_id
                                AND definition.deleted_at IS NULL LIMIT 1) living
         CROSS JOIN LATERAL (SELECT 1 FROM forebay.workspace known
                              WHERE known.id = meant.workspace_id AND known.deleted_at IS NULL LIMIT 1) of_living_workspace
         CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_definition_version version
                              WHERE version.id = coalesce(meant.version, living.published_version)
                                AND version.workflow_definition_id = living.id LIMIT 1) pinned
         WHERE living.status <> 'DRAFT'),
    startable AS MATERIALIZED (
        SELECT asked.*, versions.version_id, versions.timeout_ms, versions.limited
          FROM asked JOIN versions ON versions.workspace_id = asked.workspace_id AND versions.definition_id = asked.definition_id
                                  AND versions.version IS NOT DISTINCT FROM asked.version
         WHERE NOT asked.id = ANY (v_refused)),
    executions AS (
        INSERT INTO forebay.workflow_execution (id, workspace_id, workflow_definition_id, version_id, semantics, trigger, input,
            priority, concurrency_key, idempotency_key, fingerprint, timeout_ms, created_at, deadline_at, trace_context, root,
            rerun_of)
        SELECT start.id, start.workspace_id, start.definition_id, start.version_id, p_semantics, coalesce(start.trig, '{}'), start.input,
               start.priority, start.key, start.idempotency, start.fingerprint, start.timeout_ms, v_now,
               greatest(coalesce(start.run_at, v_now), v_now) + forebay.longest_execution(), start.trace, start.id, start.rerun_of
          -- Calls that share keys wait for each other in one order; of two equals in a call the first is accepted.
          FROM startable start ORDER BY start.workspace_id, start.idempotency, start.ord
        ON CONFLICT DO NOTHING
        RETURNING id),
    accepted AS MATERIALIZED (
        SELECT startable.* FROM startable WHERE startable.id = ANY (ARRAY(SELECT executions.id FROM executions))),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT start.workspace_id, p_actor, CASE WHEN start.rerun_of IS NULL THEN 'execution.start' ELSE 'execution.rerun' END,
               'execution', start.id, CASE WHEN start.rerun_of IS NOT NULL THEN jsonb_build_object('of', start.rerun_of) END
          FROM accepted start),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'INSERT', array_agg(start.id), array_agg(start.workspace_id), 'PENDING'
          FROM accepted start HAVING count(*) > 0),
    queued AS (
        INSERT INTO forebay.execution_queue (id, workspace_id, workflow_definition_id, execution_id, priority, created_at,
            available_at, rank, gated, stage, concurrency_key)
        SELECT start.id, start.workspace_id, start.definition_id, start.id, start.priority, v_now, coalesce(start.run_at, v_now),
               (extract(epoch FROM v_now) * 1000)::bigint + (start.priority - 3) * p_step_ms,
               start.key IS NOT NULL OR start.limited,
               CASE WHEN start.run_at > v_now THEN forebay.stage_delayed()
                    WHEN start.key IS NOT NULL THEN forebay.stage_waits_for_key()
                    WHEN start.limited THEN forebay.stage_waits_for_definition()
                    ELSE forebay.stage_ready() END,
               start.key
          FROM accepted start
        RETURNING id, stage, gated)
    SELECT coalesce(array_agg(queued.id), '{}') AS ids, bool_or(queued.gated) AS gated, min(queued.stage) AS least, max(queued.stage) AS most
      INTO v_queued FROM queued;
    v_accepted := v_queued.ids;

    IF v_queued.gated THEN
        SELECT array_agg(item.workspace_id) AS workspaces, array_agg(item.workflow_definition_id) AS definitions,
               array_agg(item.concurrency_key) AS keys
          INTO v_blocked
          FROM (SELECT DISTINCT queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key
                  FROM forebay.execution_queue queued WHERE queued.id = ANY (v_accepted) AND queued.gated) item;
        PERFORM forebay.unblock(v_blocked.workspaces, v_blocked.definitions, v_blocked.keys);
    ELSIF cardinality(v_accepted) = cardinality(p_ids) AND v_queued.least = v_queued.most THEN
        -- Nothing was refused or there before: no answer has to be looked up.
        RETURN QUERY SELECT asked.ord, 'accepted', asked.id, asked.workspace_id, v_queued.least
          FROM unnest(p_ids, p_workspaces) WITH ORDINALITY AS asked(id, workspace_id, ord);
        RETURN;
    END IF;

    RETURN QUERY
    SELECT asked.ord,
           CASE WHEN asked.id = ANY (v_accepted) THEN 'accepted'
                WHEN earlier.id IS NOT NULL AND earlier.fingerprint IS NOT DISTINCT FROM asked.fingerprint THEN 'existing'
                WHEN earlier.id IS NOT NULL THEN 'conflict'
                WHEN definition.id IS NULL THEN 'not_found'
                WHEN definition.status = 'DRAFT' THEN 'draft'
                WHEN asked.id = ANY (v_refused) THEN 'full'
                ELSE 'not_found' END,
           CASE WHEN asked.id = ANY (v_accepted) THEN asked.id ELSE earlier.id END, asked.workspace_id,
           (SELECT queued.stage FROM forebay.execution_queue queued WHERE queued.id = asked.id)
      FROM unnest(p_ids, p_workspaces, p_definitions, p_idempotency, p_fingerprints) WITH ORDINALITY
           AS asked(id, workspace_id, definition_id, idempotency, fingerprint, ord)
      -- Two probes, never one condition with OR: that read every execution there ever was.
      LEFT JOIN LATERAL (
            SELECT same_id.id, same_id.fingerprint FROM forebay.workflow_execution same_id
             WHERE same_id.id = asked.id AND NOT asked.id = ANY (v_accepted)
            UNION ALL
            SELECT same_key.id, same_key.fingerprint FROM forebay.workflow_execution same_key
             WHERE same_key.workspace_id = asked.workspace_id AND same_key.idempotency_key = asked.idempotency
               AND NOT asked.id = ANY (v_accepted)
             LIMIT 1) earlier ON true
      LEFT JOIN forebay.workflow_definition definition
             ON definition.id = asked.definition_id AND definition.workspace_id = asked.workspace_id AND definition.deleted_at IS NULL
     ORDER BY asked.ord;
END $$;

CREATE FUNCTION forebay.event_added() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
            UPDATE public.domain_events SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
             WHERE sequence = NEW.sequence;
    END;
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.event_bound() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    NEW.bound := forebay.is_bound(NEW.event_type, NEW.workspace_id);
    RETURN NEW;
END $$;

CREATE FUNCTION forebay.event_guard() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'domain events are only ever appended: say what is new in another one'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $$;

CREATE TABLE public.domain_events (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    sequence bigint NOT NULL,
    workspace_id uuid,
    stream_id uuid NOT NULL,
    stream_type text NOT NULL,
    stream_version integer NOT NULL,
    event_type text NOT NULL,
    event_data jsonb NOT NULL,
    event_metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    processing_error text,
    processing_failed_at timestamp with time zone,
    bound boolean,
    CONSTRAINT domain_events_check CHECK (((processing_error IS NULL) = (processing_failed_at IS NULL))),
    CONSTRAINT domain_events_stream_version_check CHECK ((stream_version >= 1))
);

CREATE FUNCTION forebay.event_of(p_id uuid, p_workspace uuid, p_stream uuid, p_stream_type text, p_type text) RETURNS SETOF public.domain_events
    LANGUAGE sql STABLE
    AS $$
    SELECT event.* FROM public.domain_events event
     WHERE event.id = p_id AND (p_workspace IS NULL OR event.workspace_id = p_workspace)
     ORDER BY event.workspace_id IS DISTINCT FROM p_workspace,
              (event.stream_id, event.stream_type, event.event_type) IS DISTINCT FROM (p_stream, p_stream_type, p_type), event.sequence
     LIMIT 1
$$;

CREATE FUNCTION forebay.event_waited() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    -- Whoever sees the waits of the moment at which its transaction began cannot tell: the event is noted, and judged
    -- for those of then.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') OR EXISTS (
        SELECT 1 FROM forebay.workflow_execution_ask a
         WHERE a.workspace_id = NEW.workspace_id AND a.event_type = NEW.event_type AND a.status = 'OPEN') THEN
        INSERT INTO forebay.workflow_execution_candidate (workspace_id, event_id) VALUES (NEW.workspace_id, NEW.id);
        PERFORM forebay.notify_change();
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.fact_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF pg_trigger_depth() < 2
       OR NOT pg_has_role(current_user, (SELECT own.relowner FROM pg_catalog.pg_class own WHERE own.oid = TG_RELID), 'MEMBER') THEN
        RAISE EXCEPTION 'the stream type workflow_queue is the queue''s own: choose another'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'own_stream';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION forebay.fence() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_TABLE_NAME = 'workspace' THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), OLD.shard::int);
    ELSIF TG_TABLE_NAME = 'workflow_definition' THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), forebay.shard_of(OLD.workspace_id));
    ELSE
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), shard) FROM generate_series(0, 63) AS shard;
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION forebay.is_bound(p_type text, p_workspace uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT forebay.binding_of(p_type, p_workspace) IS NOT NULL OR EXISTS (SELECT 1 FROM forebay.built_in_bindings() built WHERE built.event_type = p_type)
$$;

CREATE FUNCTION forebay.is_ours() RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT pg_has_role(forebay.caller()::name, owned.relowner, 'MEMBER') FROM pg_catalog.pg_class owned WHERE owned.oid = 'public.domain_events'::regclass
$$;

CREATE FUNCTION forebay.is_transient(p_state text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT left(p_state, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
$$;

CREATE TABLE forebay.workflow_queue_job (
    id uuid NOT NULL,
    event_id uuid,
    event_workspace_id uuid,
    event_type text COLLATE pg_catalog."C",
    workspace_id uuid,
    binding_id uuid,
    version integer NOT NULL,
    lease_s integer DEFAULT 900 NOT NULL,
    pending_since timestamp with time zone,
    due_at timestamp with time zone,
    held text,
    claim_id uuid,
    lease_until timestamp with time zone,
    claim_lease_s integer,
    retry_from timestamp with time zone,
    CONSTRAINT workflow_queue_job_check CHECK (((held IS DISTINCT FROM 'sql'::text) OR (claim_id IS NULL))),
    CONSTRAINT workflow_queue_job_check1 CHECK (((pending_since IS NULL) OR ((held IS NULL) AND (claim_id IS NULL) AND (retry_from IS NULL)))),
    CONSTRAINT workflow_queue_job_held_check CHECK ((held = ANY (ARRAY['sql'::text, 'api'::text, 'ours'::text])))
)
WITH (fillfactor='70');

CREATE TABLE public.workflow_queue_projection (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    event_id uuid NOT NULL,
    event_type text NOT NULL,
    event_data jsonb NOT NULL,
    stream_id uuid NOT NULL,
    stream_type text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    worker_id text,
    claimed_at timestamp with time zone,
    workflow_id text,
    workflow_run_id text,
    completed_at timestamp with time zone,
    failed_at timestamp with time zone,
    error_message text,
    error_stack text,
    retry_count integer DEFAULT 0 NOT NULL,
    result jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT workflow_queue_projection_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'processing'::text, 'completed'::text, 'failed'::text])))
);

CREATE FUNCTION forebay.job_beside(p_old public.workflow_queue_projection, p_new public.workflow_queue_projection) RETURNS forebay.workflow_queue_job
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_job forebay.workflow_queue_job;
BEGIN
    IF p_new.status = 'processing' THEN
        UPDATE forebay.workflow_queue_job j
           SET version = j.version + 1, pending_since = NULL, due_at = NULL, held = coalesce(j.held, 'sql'),
               lease_until = CASE WHEN coalesce(j.held, 'sql') = 'sql'
                                  THEN greatest(p_new.claimed_at, p_new.updated_at) + make_interval(secs => j.lease_s)
                                  ELSE j.lease_until END
         WHERE j.id = p_new.id RETURNING * INTO v_job;
    ELSIF p_new.status = p_old.status THEN
        UPDATE forebay.workflow_queue_job j SET version = j.version + 1 WHERE j.id = p_new.id RETURNING * INTO v_job;
    ELSIF p_new.status = 'pending' THEN
        UPDATE forebay.workflow_queue_job j
           SET version = j.version + 1, pending_since = now(), held = NULL, claim_id = NULL, lease_until = NULL, retry_from = NULL,
               due_at = (SELECT now() FROM forebay.event_binding b WHERE b.id = j.binding_id AND b.workflow_definition_id IS NOT NULL)
         WHERE j.id = p_new.id RETURNING * INTO v_job;
    ELSE
        UPDATE forebay.workflow_queue_job j
           SET version = j.version + 1, held = NULL, lease_until = NULL,
               retry_from = CASE WHEN p_new.status = 'failed' AND p_new.retry_count < forebay.max_job_failures() THEN p_new.failed_at END
         WHERE j.id = p_new.id RETURNING * INTO v_job;
    END IF;
    RETURN v_job;
END $$;

CREATE FUNCTION forebay.job_fact(p_row public.workflow_queue_projection, p_fact text, p_job forebay.workflow_queue_job) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data, event_metadata)
    SELECT p_job.workspace_id, p_row.id, 'workflow_queue', p_job.version, 'workflow.queue.' || p_fact,
           CASE WHEN p_job.version > 1
                THEN to_jsonb(p_row) - '{id,event_id,event_type,event_data,stream_id,stream_type,created_at}'::text[]
                WHEN EXISTS (SELECT 1 FROM public.domain_events e
                              WHERE e.id = p_row.event_id AND e.workspace_id IS NOT DISTINCT FROM p_job.event_workspace_id)
                THEN to_jsonb(p_row) - 'event_data'
                ELSE to_jsonb(p_row) END,
           jsonb_strip_nulls(jsonb_build_object('causation_id', p_row.event_id,
               'event_workspace_id', CASE WHEN p_job.workspace_id IS NULL THEN p_job.event_workspace_id END));
END $$;

CREATE FUNCTION forebay.job_guard() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    v_mode text := forebay.job_mode();
    v_why text;
    v_job forebay.workflow_queue_job;
BEGIN
    IF v_mode = 'rebuild' THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.status IN ('processing', 'completed', 'failed') OR NEW.retry_count <> 0 THEN
            PERFORM forebay.job_refuse('a job begins pending', 'insert an event, or a pending row');
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF v_mode IS DISTINCT FROM 'retention' THEN
            PERFORM forebay.job_refuse('jobs are deleted by retention only', 'set retention.job_days');
        END IF;
        RETURN OLD;
    END IF;

    v_why := forebay.job_illegal(OLD.status, NEW.status, OLD.retry_count);
    IF v_why IS NOT NULL THEN
        PERFORM forebay.job_refuse(v_why);
    END IF;
    IF (OLD.id, OLD.event_id, OLD.event_type, OLD.event_data, OLD.stream_id, OLD.stream_type, OLD.created_at)
       IS DISTINCT FROM (NEW.id, NEW.event_id, NEW.event_type, NEW.event_data, NEW.stream_id, NEW.stream_type, NEW.created_at) THEN
        PERFORM forebay.job_refuse('a job''s event does not change');
    END IF;
    IF OLD.status = 'processing' THEN
        SELECT * INTO v_job FROM forebay.workflow_queue_job j WHERE j.id = OLD.id;
        IF NEW.status <> 'processing' AND v_job.claim_id IS NOT NULL
           AND (v_job.claim_id::text IS DISTINCT FROM current_setting('forebay.claim', true) OR v_job.held = 'ours' AND NOT forebay.is_ours()) THEN
            PERFORM forebay.job_refuse(format('job %s is held by %s', OLD.id, OLD.worker_id), 'only whoever shows its claim can end it');
        END IF;
    END IF;
    RETURN forebay.job_shaped(OLD, NEW);
END $$;

CREATE FUNCTION forebay.job_illegal(p_from text, p_to text, p_retries integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE
        WHEN p_to NOT IN ('pending', 'processing', 'completed', 'failed') THEN NULL
        WHEN p_from = p_to THEN NULL
        WHEN p_from = 'pending' AND p_to = 'processing' THEN NULL
        WHEN p_from = 'processing' THEN NULL
        WHEN p_from = 'failed' AND p_to = 'pending' AND p_retries < forebay.max_job_failures() THEN NULL
        WHEN p_from = 'failed' AND p_to = 'pending' THEN 'a job that failed ' || p_retries || ' times is not tried again'
        WHEN p_from = 'pending' AND p_to = 'completed' THEN 'a pending job cannot be completed: claim it first'
        WHEN p_from = 'pending' THEN 'a pending job cannot be failed: claim it first'
        WHEN p_from = 'completed' THEN 'a completed job is final: it cannot become ' || p_to
        WHEN p_to = 'processing' THEN 'a failed job cannot be claimed: it is pending again when its retry is due'
        ELSE 'a failed job cannot be completed: it is pending again when its retry is due' END
$$;

CREATE FUNCTION forebay.job_mode() RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN current_setting('forebay.projection', true) <> '' AND forebay.is_ours() THEN current_setting('forebay.projection', true) END
$$;

CREATE FUNCTION forebay.job_moved() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    v_fact text;
    v_job forebay.workflow_queue_job;
BEGIN
    IF forebay.job_mode() = 'rebuild' THEN
        RETURN NULL;
    END IF;
    v_fact := CASE
        WHEN TG_OP = 'INSERT' THEN 'pending'
        WHEN TG_OP = 'DELETE' THEN 'retired'
        WHEN NEW.status = OLD.status THEN 'touched'
        WHEN NEW.status = 'processing' THEN 'claimed'
        WHEN NEW.status = 'pending' THEN CASE OLD.status WHEN 'failed' THEN 'retried' ELSE 'recovered' END
        ELSE NEW.status END;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM forebay.workflow_queue_job j WHERE j.id = OLD.id RETURNING * INTO v_job;
        v_job.version := coalesce(v_job.version, 0) + 1;
        PERFORM forebay.job_fact(OLD, v_fact, v_job);
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        -- A row that somebody inserted belongs to its event's workspace too, as the log of changes has it. The row says
        -- which event it means:
        -- the first with its id, stream and type.
        INSERT INTO forebay.workflow_queue_job AS j (id, event_type, version, pending_since, event_id, event_workspace_id, workspace_id)
        SELECT NEW.id, NEW.event_type, 1, NEW.created_at, NEW.event_id, event.workspace_id, workspace.id
          FROM (SELECT 1) one
          LEFT JOIN forebay.event_of(NEW.event_id, NULL, NEW.stream_id, NEW.stream_type, NEW.event_type) event ON true
          LEFT JOIN forebay.workspace ON workspace.id = event.workspace_id
        ON CONFLICT (id) DO UPDATE SET version = j.version + 1, event_type = excluded.event_type
        RETURNING * INTO v_job;
    ELSE
        v_job := forebay.job_beside(OLD, NEW);
    END IF;
    PERFORM forebay.job_fact(NEW, v_fact, v_job);
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.job_refuse(p_message text, p_hint text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '%', p_message || coalesce(': ' || p_hint, '') USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_move';
END $$;

CREATE FUNCTION forebay.job_shaped(p_old public.workflow_queue_projection, p_new public.workflow_queue_projection) RETURNS public.workflow_queue_projection
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_given int := p_new.retry_count;
    v_before public.workflow_queue_projection := p_old;
BEGIN
    -- Somebody's clock may be ahead; a lease must not last longer for it.
    p_new.updated_at := CASE WHEN p_new.updated_at = p_old.updated_at THEN now() ELSE least(p_new.updated_at, now()) END;
    p_new.retry_count := p_old.retry_count;
    IF p_new.status = 'processing' AND p_old.status = 'pending' THEN
        IF p_new.worker_id IS NULL THEN
            PERFORM forebay.job_refuse('a claim says whose it is', 'set worker_id');
        END IF;
        p_new.claimed_at := least(coalesce(p_new.claimed_at, now()), now());
    ELSIF p_new.status = 'pending' AND p_old.status <> 'pending' THEN
        p_new.worker_id := NULL;
        p_new.claimed_at := NULL;
        p_new.workflow_id := NULL;
        p_new.workflow_run_id := NULL;
        p_new.completed_at := NULL;
        p_new.failed_at := NULL;
        p_new.error_message := NULL;
        p_new.error_stack := NULL;
        p_new.result := NULL;
        -- A retry that counts itself would count the failure twice: it is counted already.
        RETURN p_new;
    ELSIF p_new.status = 'completed' AND p_old.status = 'processing' THEN
        p_new.completed_at := coalesce(p_new.completed_at, now());
    ELSIF p_new.status = 'failed' AND p_old.status = 'processing' THEN
        p_new.failed_at := coalesce(p_new.failed_at, now());
        p_new.retry_count := p_old.retry_count + 1;
        RETURN p_new;
    ELSIF p_new.status = p_old.status THEN
        v_before.updated_at := p_new.updated_at;
        IF p_new.status = 'processing' THEN
            IF p_new.worker_id IS DISTINCT FROM p_old.worker_id THEN
                PERFORM forebay.job_refuse(format('a processing job cannot be claimed: %s holds it', p_old.worker_id));
            END IF;
            p_new.claimed_at := least(p_new.claimed_at, now());
            v_before.claimed_at := p_new.claimed_at;
            v_before.workflow_id := p_new.workflow_id;
            v_before.workflow_run_id := p_new.workflow_run_id;
        END IF;
        IF v_before IS DISTINCT FROM p_new THEN
            PERFORM forebay.job_refuse(format('a %s job cannot be changed', p_new.status), 'its heartbeat is updated_at');
        END IF;
    END IF;
    IF v_given <> p_old.retry_count THEN
        PERFORM forebay.job_refuse('retry_count counts failures', 'it cannot be set');
    END IF;
    RETURN p_new;
END $$;

CREATE FUNCTION forebay.job_truncate() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM forebay.job_refuse('jobs are deleted by retention only', 'set retention.job_days');
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.lock_deliveries() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT hashtext('forebay.deliveries') $$;

CREATE FUNCTION forebay.lock_shard() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT hashtext('forebay.shard') $$;

CREATE FUNCTION forebay.lock_stream() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT hashtext('forebay.stream') $$;

CREATE FUNCTION forebay.log_projection() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    AS $$
DECLARE
    v_row public.workflow_queue_projection := coalesce(NEW, OLD);
BEGIN
    INSERT INTO forebay.change_log (topic, op, refs, workspaces, record, old_record)
    SELECT 'projection', TG_OP, ARRAY[v_row.id], ARRAY[found.workspace_id],
           CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END, CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END
      FROM (SELECT 1) one
      LEFT JOIN LATERAL (
            SELECT coalesce(job.event_workspace_id, job.workspace_id) AS workspace_id FROM forebay.workflow_queue_job job WHERE job.id = v_row.id
            UNION ALL
            (SELECT fact.workspace_id FROM public.domain_events fact
              WHERE fact.stream_id = v_row.id AND fact.stream_type = 'workflow_queue' ORDER BY fact.stream_version DESC LIMIT 1)
            UNION ALL
            SELECT event.workspace_id FROM forebay.event_of(v_row.event_id, NULL, v_row.stream_id, v_row.stream_type, v_row.event_type) event
            LIMIT 1) found ON true;
    PERFORM forebay.notify_change();
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.longest_execution() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT interval '30 days' $$;

CREATE FUNCTION forebay.make_job(p_event public.domain_events, p_binding uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    new_id uuid := gen_random_uuid();
BEGIN
    IF EXISTS (SELECT 1 FROM forebay.workflow_queue_job j
                WHERE j.event_id = p_event.id AND j.event_workspace_id IS NOT DISTINCT FROM p_event.workspace_id) THEN
        RETURN;
    END IF;
    INSERT INTO forebay.workflow_queue_job (id, event_id, event_workspace_id, workspace_id, binding_id, version, lease_s, pending_since, due_at)
    SELECT new_id, p_event.id, p_event.workspace_id, (SELECT w.id FROM forebay.workspace w WHERE w.id = p_event.workspace_id), b.id, 0, coalesce(b.lease_s, 900), now(),
           CASE WHEN b.workflow_definition_id IS NOT NULL THEN now() END
      FROM (SELECT 1) one LEFT JOIN forebay.event_binding b ON b.id = p_binding;
    INSERT INTO public.workflow_queue_projection (id, event_id, event_type, event_data, stream_id, stream_type)
    VALUES (new_id, p_event.id, p_event.event_type, p_event.event_data, p_event.stream_id, p_event.stream_type);
END $$;

CREATE FUNCTION forebay.max_job_failures() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 3$$;

CREATE FUNCTION forebay.new_id() RETURNS uuid
    LANGUAGE sql
    AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid()) PLACING
                substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$$;

CREATE FUNCTION forebay.notify_change() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF pg_try_advisory_xact_lock(hashtextextended('forebay.notify', 0)) THEN
        PERFORM pg_notify('forebay_change', '');
    END IF;
END $$;

CREATE FUNCTION forebay.priority_step_ms() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 60000::bigint$$;

CREATE FUNCTION forebay.semantics() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 3$$;

CREATE FUNCTION forebay.shard_of(p_workspace uuid) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT get_byte(uuid_send(p_workspace), 15) & 63 $$;

CREATE FUNCTION forebay.stage_delayed() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 1$$;

CREATE FUNCTION forebay.stage_failed() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 9$$;

CREATE FUNCTION forebay.stage_ready() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 0$$;

CREATE FUNCTION forebay.stage_slot() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 5$$;

CREATE FUNCTION forebay.stage_waits_for_definition() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 3$$;

CREATE FUNCTION forebay.stage_waits_for_key() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 2$$;

CREATE FUNCTION forebay.types_of_event(p_type text) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT p_type || coalesce(array_agg(array_to_string(parts[1:n], '.') || '.*'), '{}')
      FROM (SELECT string_to_array(p_type, '.') AS parts) p, generate_series(1, least(cardinality(parts) - 1, 16)) n
$$;

CREATE FUNCTION forebay.unblock(p_workspaces uuid[], p_definitions uuid[], p_keys text[]) RETURNS SETOF uuid
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
DECLARE
    v_through_key record;
BEGIN
    WITH keys AS MATERIALIZED (
        SELECT DISTINCT asked.workspace_id, asked.definition_id, asked.key, forebay.shard_of(asked.workspace_id)::smallint AS shard
          FROM unnest(p_workspaces, p_definitions, p_keys) AS asked(workspace_id, definition_id, key) WHERE asked.key IS NOT NULL),
    chosen AS MATERIALIZED (
        SELECT next.id, definition.concurrency IS NOT NULL OR definition.status <> 'ACTIVE' AS limited
          FROM keys JOIN forebay.workflow_definition definition ON definition.id = keys.definition_id AND definition.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT waiting.id FROM forebay.execution_queue waiting
             WHERE waiting.shard = keys.shard AND waiting.workspace_id = keys.workspace_id
               AND waiting.workflow_definition_id = keys.definition_id AND waiting.concurrency_key = keys.key
               AND waiting.stage = forebay.stage_waits_for_key()
             ORDER BY waiting.rank, waiting.id
             LIMIT greatest(definition.key_concurrency - (
                SELECT count(*) FROM forebay.execution_queue through
                 WHERE through.stage IN (forebay.stage_ready(), forebay.stage_waits_for_definition(), forebay.stage_slot())
                   AND through.workspace_id = keys.workspace_id AND through.workflow_definition_id = keys.definition_id
                   AND through.concurrency_key = keys.key), 0)
             FOR UPDATE SKIP LOCKED) next),
    moved AS (
        UPDATE forebay.execution_queue queued
           SET stage = CASE WHEN chosen.limited THEN forebay.stage_waits_for_definition() ELSE forebay.stage_ready() END
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id, queued.workflow_definition_id, chosen.limited)
    SELECT array_agg(DISTINCT moved.workspace_id) FILTER (WHERE NOT moved.limited) AS ready_in,
           array_agg(moved.workspace_id) FILTER (WHERE moved.limited) AS workspaces,
           array_agg(moved.workflow_definition_id) FILTER (WHERE moved.limited) AS definitions
      INTO v_through_key FROM moved;

    RETURN QUERY
    WITH definitions AS MATERIALIZED (
        SELECT DISTINCT asked.workspace_id, asked.definition_id, forebay.shard_of(asked.workspace_id)::smallint AS shard
          FROM (SELECT given.workspace_id, given.definition_id
                  FROM unnest(p_workspaces, p_definitions, p_keys) AS given(workspace_id, definition_id, key) WHERE given.key IS NULL
                UNION ALL
                SELECT passed.workspace_id, passed.definition_id
                  FROM unnest(v_through_key.workspaces, v_through_key.definitions) AS passed(workspace_id, definition_id)) asked),
    chosen AS MATERIALIZED (
        SELECT next.id FROM definitions asked
          JOIN forebay.workflow_definition definition
            ON definition.id = asked.definition_id AND definition.status = 'ACTIVE' AND definition.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT waiting.id FROM forebay.execution_queue waiting
             WHERE waiting.shard = asked.shard AND waiting.workspace_id = asked.workspace_id
               AND waiting.workflow_definition_id = asked.definition_id AND waiting.stage = forebay.stage_waits_for_definition()
             ORDER BY waiting.rank, waiting.id
             LIMIT CASE WHEN definition.concurrency IS NULL THEN 1000 ELSE greatest(definition.concurrency - (
                SELECT count(*) FROM forebay.execution_queue through
                 WHERE through.gated AND through.stage IN (forebay.stage_ready(), forebay.stage_slot())
                   AND through.workspace_id = asked.workspace_id AND through.workflow_definition_id = asked.definition_id) - (
                -- Those that took their slot before the limit came.
                SELECT count(*) FROM forebay.execution_queue holder
                 WHERE holder.shard = asked.shard AND holder.workspace_id = asked.workspace_id AND holder.stage = forebay.stage_slot()
                   AND holder.workflow_definition_id = asked.definition_id AND NOT holder.gated), 0) END
             FOR UPDATE SKIP LOCKED) next),
    moved AS (
        UPDATE forebay.execution_queue queued SET stage = forebay.stage_ready()
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id)
    SELECT moved.workspace_id FROM moved UNION SELECT unnest(v_through_key.ready_in);
END $$;

CREATE FUNCTION forebay_r1.add_deliveries(p_ended uuid[]) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    INSERT INTO forebay.webhook_delivery (id, webhook_id, workspace_id, execution_id, event, due_at)
    SELECT forebay.new_id(), w.id, e.workspace_id, e.id, e.status, clock_timestamp()
      FROM unnest(p_ended) AS t(id)
     CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution e WHERE e.id = t.id AND e.parent IS NULL LIMIT 1) e
      JOIN forebay.webhook w ON w.workspace_id = e.workspace_id AND w.disabled_at IS NULL AND e.status = ANY (w.events)
       AND coalesce(w.workflow_definition_id, e.workflow_definition_id) = e.workflow_definition_id
    ON CONFLICT DO NOTHING
$$;

CREATE FUNCTION forebay_r1.after_end(p_ids uuid[], p_outcomes text[], p_errors jsonb[], p_of_events uuid[], p_of_trees uuid[], p_open boolean, p_actor text) RETURNS TABLE(execution uuid, ticket boolean, freed boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_left record;
BEGIN
    IF p_of_trees IS NOT NULL THEN
        PERFORM forebay_r1.end_descendants(p_of_trees, p_actor);
    END IF;
    -- p_open: nodes may be open also of what COMPLETED. Of a run that says so itself none is.
    IF p_open OR 'COMPLETED' <> ANY (p_outcomes) THEN
        PERFORM forebay_r1.close_waits(p_ids);
        WITH open_nodes AS (
            SELECT node.execution_id, node.node, node.iteration,
                   execution.last_seq + row_number() OVER (PARTITION BY node.execution_id ORDER BY node.node, node.iteration) AS seq,
                   -- What is below ended before: of a child, in its rows.
                   node.status = 'RUNNING' AND (node.once OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution child
                        WHERE child.parent = node.execution_id AND child.parent_node = node.node
                          AND child.parent_iteration = node.iteration AND child.parent_attempt = node.attempt
                          AND forebay_r1.is_unknown(child.id))) AS unknown
              FROM forebay.workflow_execution_node node JOIN forebay.workflow_execution execution ON execution.id = node.execution_id
             WHERE node.execution_id = ANY (p_ids) AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')),
        judged AS (
            SELECT open.execution_id, open.node, open.iteration, open.seq,
                   open.unknown OR (open.iteration = 0 AND (
                       bool_or(open.unknown) OVER (PARTITION BY open.execution_id, open.node) OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution_node item
                        WHERE item.execution_id = open.execution_id AND item.node = open.node AND item.iteration > 0
                          AND item.status = 'UNKNOWN'))) AS unknown
              FROM open_nodes open),
        settled AS (
            UPDATE forebay.workflow_execution_node node
               SET status = CASE WHEN judged.unknown THEN 'UNKNOWN' ELSE 'CANCELED' END,
                   error = CASE WHEN judged.unknown THEN jsonb_build_object('type', 'RESULT_UNKNOWN', 'node', node.node, 'message',
                       'its execution was ended while something was being performed that may be performed at most once: '
                       'find out whether it took effect, then rerun with resolve done or repeat') ELSE node.error END,
                   completed_at = clock_timestamp(), next_at = NULL, seq = judged.seq,
                   duration_ms = (extract(epoch FROM clock_timestamp() - node.started_at) * 1000)::bigint
              FROM judged
             WHERE node.execution_id = judged.execution_id AND node.node = judged.node AND node.iteration = judged.iteration
               AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')
            RETURNING node.execution_id, node.seq)
        UPDATE forebay.workflow_execution execution SET last_seq = progress.seq
          FROM (SELECT settled.execution_id, max(settled.seq) AS seq FROM settled GROUP BY settled.execution_id) progress
         WHERE execution.id = progress.execution_id;
    END IF;

    WITH deleted AS (
        DELETE FROM forebay.execution_queue queued
         WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                       WHERE ended.outcome IN ('COMPLETED', 'CANCELED')))
           AND queued.status <> 'FAILED'
        RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key, queued.gated,
                  queued.claim_id IS NOT NULL AS freed),
    failed AS (
        UPDATE forebay.execution_queue queued
           SET status = 'FAILED', stage = forebay.stage_failed(),
               last_error = (SELECT coalesce(ended.error ->> 'message', ended.outcome)
                               FROM unnest(p_ids, p_outcomes, p_errors) AS ended(id, outcome, error) WHERE ended.id = queued.id LIMIT 1)
         WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                       WHERE ended.outcome IN ('FAILED', 'TIMED_OUT')))
           AND queued.status <> 'FAILED'
        RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key, queued.gated,
                  queued.claim_id IS NOT NULL AS freed),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT failed.workspace_id, p_actor, 'queue_item.fail', 'queue_item', failed.id, ended.error
          FROM failed JOIN unnest(p_ids, p_errors) AS ended(id, error) ON ended.id = failed.id),
    left_queue AS (
        SELECT id, workspace_id, workflow_definition_id, concurrency_key, gated, freed FROM deleted
        UNION ALL
        SELECT id, workspace_id, workflow_definition_id, concurrency_key, gated, freed FROM failed)
    SELECT coalesce(array_agg(item.id), '{}') AS ids, array_agg(item.freed) AS freed,
           array_agg(item.workspace_id) FILTER (WHERE item.gated) AS workspaces,
           array_agg(item.workflow_definition_id) FILTER (WHERE item.gated) AS definitions,
           array_agg(item.concurrency_key) FILTER (WHERE item.gated) AS keys
      INTO v_left FROM left_queue item;

    -- Each once by its key and once by its definition.
    IF v_left.workspaces IS NOT NULL THEN
        PERFORM forebay.unblock(v_left.workspaces || v_left.workspaces, v_left.definitions || v_left.definitions,
                                v_left.keys || array_fill(NULL::text, ARRAY[cardinality(v_left.workspaces)]));
    END IF;
    IF p_of_events IS NOT NULL THEN
        PERFORM forebay_r1.end_jobs_of(p_of_events);
    END IF;

    RETURN QUERY
    SELECT ended.id, item.id IS NOT NULL, coalesce(item.freed, false)
      FROM unnest(p_ids) AS ended(id) LEFT JOIN unnest(v_left.ids, v_left.freed) AS item(id, freed) ON item.id = ended.id;
END $$;

CREATE FUNCTION forebay_r1.answer_wait(p_execution uuid, p_node text, p_iteration integer, p_workspace uuid, p_token bytea, p_output jsonb, p_by text, p_open boolean) RETURNS TABLE(told text, engine text, holder uuid, owner uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    a forebay.workflow_execution_ask;
    t forebay.workflow_execution_token;
    v_lives boolean;
    v_told text;
    v_useless text;
    v_workspace uuid;
BEGIN
    v_workspace := (SELECT e.workspace_id FROM forebay.workflow_execution e
                     WHERE e.id = p_execution AND e.workspace_id = coalesce(p_workspace, e.workspace_id));
    IF v_workspace IS NULL THEN
        RETURN QUERY SELECT 'missing', NULL::text, NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_lives := forebay_r1.lock_tree(p_execution);
    IF p_token IS NOT NULL THEN
        SELECT * INTO t FROM forebay.workflow_execution_token t
         WHERE t.hash = p_token AND t.execution_id = p_execution AND t.node = p_node AND t.iteration = p_iteration FOR UPDATE;
        v_told := CASE WHEN t.hash IS NULL THEN 'missing' WHEN t.used_at IS NOT NULL THEN 'used'
                       WHEN t.expires_at <= clock_timestamp() THEN 'missing' END;
    END IF;
    v_told := coalesce(v_told, CASE WHEN v_lives IS NULL THEN 'missing' WHEN NOT v_lives THEN 'over' END);
    v_useless := forebay_r1.useless_answer(p_execution, p_node, p_iteration);
    IF v_told IS NULL AND NOT p_open AND v_useless IS NULL THEN
        INSERT INTO forebay.workflow_execution_ask (execution_id, node, iteration, id, workspace_id, kind, attempt, status, outcome, output,
            answered_by, answered_at)
        VALUES (p_execution, p_node, p_iteration, forebay.new_id(), v_workspace, 'WAIT', 0, 'ANSWERED', 'COMPLETED', p_output, p_by,
            clock_timestamp())
        ON CONFLICT DO NOTHING;
        v_told := CASE WHEN FOUND THEN 'early' END;
    END IF;
    IF v_told IS NULL THEN
        SELECT * INTO a FROM forebay.workflow_execution_ask a
         WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration FOR UPDATE;
        v_told := CASE WHEN a.id IS NULL AND NOT p_open AND v_useless IS NOT NULL THEN v_useless
                       WHEN a.id IS NULL OR a.kind <> 'WAIT' THEN 'missing'
                       WHEN a.status = 'OPEN' AND a.expires_at <= clock_timestamp() THEN 'expired'
                       WHEN a.status = 'OPEN' THEN coalesce(v_useless, 'accepted')
                       WHEN a.status IN ('ANSWERED', 'TAKEN') THEN 'answered'
                       WHEN a.status = 'EXPIRED' THEN 'expired' ELSE 'over' END;
        UPDATE forebay.workflow_execution_ask a
           SET status = 'ANSWERED', outcome = 'COMPLETED', output = p_output, answered_by = p_by, answered_at = clock_timestamp(), look = false
         WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration AND a.status = 'OPEN' AND v_told = 'accepted';
        UPDATE forebay.workflow_execution_ask a SET status = 'EXPIRED', look = false
         WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration AND a.status = 'OPEN' AND v_told = 'expired';
    END IF;
    IF v_told IN ('accepted', 'early') THEN
        UPDATE forebay.workflow_execution_token t SET used_at = clock_timestamp() WHERE t.hash = p_token AND t.used_at IS NULL;
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        VALUES (v_workspace, p_by, 'wait.answer', 'execution', p_execution, jsonb_build_object('node', p_node, 'iteration', p_iteration));
    END IF;
    RETURN QUERY SELECT v_told, CASE WHEN v_told IN ('accepted', 'expired') THEN forebay_r1.wake_run(a.holder) END, a.holder,
                        (SELECT e.owner FROM forebay.workflow_execution e WHERE e.id = a.holder);
END $$;

CREATE FUNCTION forebay_r1.append_events(p_ids uuid[], p_derived boolean[], p_workspaces uuid[], p_streams uuid[], p_stream_types text[], p_expected integer[], p_types text[], p_data jsonb[], p_metadata jsonb[]) RETURNS TABLE(ord bigint, id uuid, added boolean, sequence bigint, version integer, created timestamp with time zone, bound boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '2s'
    AS $$
#variable_conflict use_column
DECLARE
    t record;
    v_id uuid;
    v_old public.domain_events;
    v_latest int;
BEGIN
    -- Streams are appended to one at a time, in one order for all calls.
    PERFORM pg_advisory_xact_lock(forebay.lock_stream(), s.key) FROM (
        SELECT DISTINCT hashtext(concat_ws('/', t.workspace, t.stream, t.type)) AS key
          FROM unnest(p_workspaces, p_streams, p_stream_types) AS t(workspace, stream, type)
         ORDER BY 1) s;
    FOR t IN SELECT * FROM unnest(p_ids, p_derived, p_workspaces, p_streams, p_stream_types, p_expected, p_types, p_data, p_metadata)
                WITH ORDINALITY AS t(id, derived, workspace, stream, stream_type, expected, type, data, metadata, ord)
    LOOP
        v_id := CASE WHEN t.derived THEN forebay_r1.derived_event_id(t.workspace, t.id) ELSE t.id END;
        SELECT * INTO v_old FROM public.domain_events e WHERE e.id = v_id AND e.workspace_id IS NOT DISTINCT FROM t.workspace;
        IF NOT FOUND AND t.derived THEN
            -- A build before this one took the seed for the id; a crash since then must not repeat the event.
            SELECT * INTO v_old FROM public.domain_events e
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
        v_latest := forebay_r1.stream_version(t.workspace, t.stream, t.stream_type);
        IF t.expected <> v_latest THEN
            RAISE EXCEPTION 'event %: its stream is at version %, not %', t.ord - 1, v_latest, t.expected
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'version_conflict';
        END IF;
        RETURN QUERY
        INSERT INTO public.domain_events AS e (id, workspace_id, stream_id, stream_type, stream_version, event_type, event_data, event_metadata)
        VALUES (v_id, t.workspace, t.stream, t.stream_type, v_latest + 1, t.type, t.data, coalesce(t.metadata, '{}'))
        RETURNING t.ord, e.id, true, e.sequence, e.stream_version, e.created_at, e.bound;
    END LOOP;
END $$;

CREATE FUNCTION forebay_r1.begin_runs(p_ids uuid[], p_engine text, p_where text, p_process uuid, p_semantics integer) RETURNS TABLE(execution uuid, answer text, workspace uuid, definition uuid, version uuid, epoch bigint, input jsonb, trigger jsonb, created timestamp with time zone, deadline_in_ms bigint, trace text)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_roots uuid[];
    v_with_slot uuid[];
BEGIN
    SELECT array_agg(child.root) INTO v_roots FROM forebay.workflow_execution child WHERE child.id = ANY (p_ids) AND child.parent IS NOT NULL;
    IF v_roots IS NOT NULL THEN
        PERFORM 1 FROM forebay.workflow_execution root WHERE root.id = ANY (v_roots) ORDER BY root.id FOR UPDATE;
    END IF;
    PERFORM 1 FROM forebay.workflow_execution asked WHERE asked.id = ANY (p_ids) ORDER BY asked.id FOR UPDATE;
    -- Locked as well: an item given back at this moment would leave a run without a slot.
    SELECT coalesce(array_agg(holder.id), '{}') INTO v_with_slot FROM (
        SELECT queued.id FROM forebay.execution_queue queued
         WHERE queued.id = ANY (p_ids) AND queued.status IN ('CLAIMED', 'DISPATCHED') ORDER BY queued.id FOR UPDATE) holder;
    IF v_roots IS NOT NULL THEN
        v_with_slot := v_with_slot || ARRAY(
            SELECT child.id FROM forebay.workflow_execution child
             WHERE child.id = ANY (p_ids) AND child.parent IS NOT NULL
               AND (SELECT root.status FROM forebay.workflow_execution root WHERE root.id = child.root) = 'RUNNING');
    END IF;
    WITH begun AS (
        UPDATE forebay.workflow_execution pending
           SET status = 'RUNNING', engine = p_engine, engine_where = p_where, owner = p_process,
               engine_run_id = CASE WHEN p_where IS NOT NULL THEN p_process::text END, owner_epoch = owner_epoch + 1,
               started_at = clock_timestamp(),
               deadline_at = least(pending.deadline_at, clock_timestamp() + make_interval(secs => pending.timeout_ms / 1000.0))
         WHERE pending.id = ANY (v_with_slot) AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
        RETURNING pending.id, pending.workspace_id)
    INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
    SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING' FROM begun HAVING count(*) > 0;
    UPDATE forebay.execution_queue queued SET status = 'DISPATCHED', dispatched_at = clock_timestamp()
      FROM forebay.workflow_execution own
     WHERE queued.id = ANY (v_with_slot) AND queued.status = 'CLAIMED'
       AND own.id = queued.id AND own.status = 'RUNNING' AND own.owner = p_process;
    RETURN QUERY
    SELECT asked.id,
           CASE WHEN stored.id IS NULL THEN 'gone'
                WHEN stored.status = 'RUNNING' AND stored.owner = p_process THEN 'granted'
                WHEN stored.status = 'PENDING' THEN 'not_yet'
                ELSE 'ended' END,
           stored.workspace_id, stored.workflow_definition_id, stored.version_id, stored.owner_epoch, stored.input, stored.trigger, stored.created_at,
           (extract(epoch FROM stored.deadline_at - clock_timestamp()) * 1000)::bigint, stored.trace_context
      FROM unnest(p_ids) AS asked(id) LEFT JOIN forebay.workflow_execution stored ON stored.id = asked.id;
END $$;

CREATE FUNCTION forebay_r1.bindings_of_pending_jobs() RETURNS SETOF uuid
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    WITH RECURSIVE w AS (
        (SELECT j.binding_id FROM forebay.workflow_queue_job j WHERE j.pending_since IS NOT NULL AND j.binding_id IS NOT NULL
          ORDER BY j.binding_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.binding_id FROM forebay.workflow_queue_job j WHERE j.pending_since IS NOT NULL AND j.binding_id > w.binding_id
                 ORDER BY j.binding_id LIMIT 1)
          FROM w WHERE w.binding_id IS NOT NULL)
    SELECT w.binding_id FROM w WHERE w.binding_id IS NOT NULL
$$;

CREATE TABLE forebay.workflow_execution_candidate (
    id bigint NOT NULL,
    workspace_id uuid NOT NULL,
    event_id uuid,
    after_wait uuid,
    execution_id uuid,
    node text,
    iteration integer,
    after_at timestamp with time zone,
    after_sequence bigint,
    taken_by uuid,
    taken_until timestamp with time zone,
    next_wait uuid,
    next_at timestamp with time zone,
    next_sequence bigint,
    more boolean DEFAULT false NOT NULL,
    CONSTRAINT workflow_execution_candidate_check CHECK (((event_id IS NULL) <> (execution_id IS NULL))),
    CONSTRAINT workflow_execution_candidate_check1 CHECK ((((execution_id IS NULL) = (node IS NULL)) AND ((execution_id IS NULL) = (iteration IS NULL)))),
    CONSTRAINT workflow_execution_candidate_check2 CHECK ((((execution_id IS NULL) = (after_at IS NULL)) AND ((execution_id IS NULL) = (after_sequence IS NULL)))),
    CONSTRAINT workflow_execution_candidate_check3 CHECK (((taken_by IS NULL) = (taken_until IS NULL)))
);

CREATE FUNCTION forebay_r1.candidate_page(c forebay.workflow_execution_candidate, p_limit integer) RETURNS TABLE(wait uuid, at timestamp with time zone, sequence bigint, execution uuid, node text, iteration integer, match text, event uuid, fits boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    IF c.event_id IS NOT NULL THEN
        RETURN QUERY
        SELECT a.id, NULL::timestamptz, NULL::bigint, a.execution_id, a.node, a.iteration, a.match, d.id, a.events_from <= d.created_at
          FROM public.domain_events d
         CROSS JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_ask a
                WHERE a.workspace_id = c.workspace_id AND a.event_type = d.event_type AND a.status = 'OPEN'
                  AND a.id > coalesce(c.after_wait, '00000000-0000-0000-0000-000000000000')
                ORDER BY a.id LIMIT p_limit) a
         WHERE d.id = c.event_id AND d.workspace_id = c.workspace_id
         ORDER BY a.id;
    ELSE
        RETURN QUERY
        SELECT NULL::uuid, d.created_at, d.sequence, a.execution_id, a.node, a.iteration, a.match, d.id, true
          FROM forebay.workflow_execution_ask a
         CROSS JOIN LATERAL (
               SELECT * FROM public.domain_events d
                WHERE d.workspace_id = c.workspace_id AND d.event_type = a.event_type AND d.stream_type <> 'workflow_queue'
                  AND (d.created_at, d.sequence) > (c.after_at, c.after_sequence)
                ORDER BY d.created_at, d.sequence LIMIT p_limit) d
         WHERE a.execution_id = c.execution_id AND a.node = c.node AND a.iteration = c.iteration AND a.status = 'OPEN'
         ORDER BY d.created_at, d.sequence;
    END IF;
END $$;

CREATE FUNCTION forebay_r1.capacity(p_workspace uuid, p_counted bigint) RETURNS TABLE(max_running integer, paused boolean, running integer, ready integer, waits_for_key integer, waits_for_definition integer, delayed integer, failed integer, oldest_s double precision)
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    SELECT coalesce(w.limit_override, t.max_running) AS max_running, w.paused,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_slot() LIMIT p_counted) x) AS running,
           ready.count AS ready, keyed.count AS waits_for_key, gated.count AS waits_for_definition,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_delayed() LIMIT p_counted) x) AS delayed,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue r
             WHERE r.workspace_id = w.id AND r.stage = forebay.stage_failed() LIMIT p_counted) x) AS failed,
           extract(epoch FROM clock_timestamp() - least(ready.oldest, keyed.oldest, gated.oldest))::float8 AS oldest_s
      FROM forebay.workspace w JOIN forebay.tier t ON t.name = w.tier
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(x.since) AS oldest FROM (
            SELECT greatest(r.created_at, r.available_at) AS since FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_ready()
             ORDER BY r.rank, r.id LIMIT p_counted) x) ready
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(x.since) AS oldest FROM (
            SELECT greatest(r.created_at, r.available_at) AS since FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_waits_for_key() LIMIT p_counted) x) keyed
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(x.since) AS oldest FROM (
            SELECT greatest(r.created_at, r.available_at) AS since FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_waits_for_definition() LIMIT p_counted) x) gated
     WHERE w.id = p_workspace AND w.deleted_at IS NULL
$$;

CREATE FUNCTION forebay_r1.change_rows_for_protocol(p_protocol integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    NULL;
END $$;

CREATE FUNCTION forebay_r1.claim(p_workspaces uuid[], p_wanted integer[], p_claim uuid, p_process uuid, p_engine text, p_semantics integer, p_protocol integer) RETURNS TABLE(kind text, workspace uuid, item uuid, definition uuid, version uuid, attempts integer, in_doubt boolean, gone boolean, newer boolean, begun boolean, epoch bigint, input jsonb, trigger jsonb, created timestamp with time zone, deadline_in_ms bigint, running integer, max_running integer, more boolean, parked boolean, in_the_way uuid[], weight integer, trace text, waited_ms bigint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_shards int[] := ARRAY(SELECT DISTINCT forebay.shard_of(asked.id) FROM unnest(p_workspaces) AS asked(id) ORDER BY 1);
    v_now timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'forebay_r1.claim needs READ COMMITTED';
    END IF;
    IF cardinality(v_shards) = 1 THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), v_shards[1]);
    ELSE
        v_shards := ARRAY(SELECT shard FROM unnest(v_shards) AS shard WHERE pg_try_advisory_xact_lock(forebay.lock_shard(), shard));
    END IF;
    -- Read under the lock: whoever raises it holds every shard's.
    IF p_protocol <> (SELECT number FROM forebay.protocol) THEN
        RAISE EXCEPTION 'a claim by protocol % is refused: the claims of this database go by protocol %', p_protocol,
            (SELECT number FROM forebay.protocol)
            USING ERRCODE = 'FB001', HINT = 'Replace this process by one of the release that the others run.';
    END IF;
    -- One time for the whole claim: of those it took together, the ids say who was before whom.
    v_now := clock_timestamp();
    RETURN QUERY
    WITH workspaces AS MATERIALIZED (
        SELECT known.id, known.shard, known.weight, slots.running, coalesce(known.limit_override, tier.max_running) AS max_running,
               known.paused OR known.deleted_at IS NOT NULL AS closed,
               CASE WHEN known.paused OR known.deleted_at IS NOT NULL THEN 0
                    ELSE least(asked.wanted, coalesce(known.limit_override, tier.max_running) - slots.running) END AS room
          FROM (SELECT each.id, max(each.wanted) AS wanted FROM unnest(p_workspaces, p_wanted) AS each(id, wanted) GROUP BY each.id) asked
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.workspace WHERE workspace.id = asked.id LIMIT 1) known
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = known.tier LIMIT 1) tier
         CROSS JOIN LATERAL (SELECT count(*)::int AS running FROM forebay.execution_queue holder
                              WHERE holder.shard = known.shard AND holder.workspace_id = known.id
                                AND holder.stage = forebay.stage_slot()) slots
         WHERE known.shard = ANY (v_shards)),
    candidates AS MATERIALIZED (
        SELECT next.* FROM workspaces CROSS JOIN LATERAL (
            SELECT ready.id, ready.shard, ready.workspace_id, ready.workflow_definition_id AS definition_id, ready.concurrency_key AS key,
                   ready.rank, ready.gated, ready.attempt_count, ready.in_doubt, greatest(ready.created_at, ready.available_at) AS since
              FROM forebay.execution_queue ready
             WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id AND ready.stage = forebay.stage_ready()
             ORDER BY ready.rank, ready.id LIMIT greatest(workspaces.room, 0) FOR UPDATE SKIP LOCKED) next),
    -- A missing definition must not block its workspace's head: its item is claimed, then failed.
    within_key AS (
        SELECT candidate.*, definition.id IS NULL OR definition.deleted_at IS NOT NULL AS gone,
               CASE WHEN definition.deleted_at IS NOT NULL THEN NULL
                    WHEN definition.status <> 'ACTIVE' THEN 0
                    ELSE definition.concurrency END AS definition_limit,
               candidate.key IS NULL
               OR row_number() OVER (PARTITION BY candidate.definition_id, candidate.key ORDER BY candidate.rank, candidate.id)
                  + (SELECT count(*) FROM forebay.execution_queue holder
                      WHERE holder.shard = candidate.shard AND holder.workspace_id = candidate.workspace_id
                        AND holder.stage = forebay.stage_slot()
                        AND holder.workflow_definition_id = candidate.definition_id AND holder.concurrency_key = candidate.key)
                  <= coalesce(definition.key_concurrency, 1) AS key_has_room
          FROM candidates candidate LEFT JOIN forebay.workflow_definition definition ON definition.id = candidate.definition_id),
    within_limits AS (
        SELECT candidate.*, key_has_room AND (
               definition_limit IS NULL
               OR row_number() OVER (PARTITION BY definition_id, key_has_room ORDER BY rank, id)
                  + (SELECT count(*) FROM forebay.execution_queue holder
                      WHERE holder.shard = candidate.shard AND holder.workspace_id = candidate.workspace_id
                        AND holder.stage = forebay.stage_slot() AND holder.workflow_definition_id = candidate.definition_id)
                  <= definition_limit) AS granted
          FROM within_key candidate),
    decided AS MATERIALIZED (
        SELECT candidate.*, execution.id IS NOT NULL AS begins, execution.version_id, execution.owner_epoch, execution.input,
               execution.trigger, execution.accepted_at, execution.deadline_at, execution.trace_context
          FROM within_limits candidate LEFT JOIN LATERAL (
            SELECT pending.id, pending.version_id, pending.owner_epoch, pending.input, pending.trigger,
                   pending.created_at AS accepted_at, pending.trace_context,
                   least(pending.deadline_at, v_now + make_interval(secs => pending.timeout_ms / 1000.0)) AS deadline_at
              FROM forebay.workflow_execution pending
             WHERE pending.id = candidate.id AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
               AND p_engine IS NOT NULL AND candidate.granted AND NOT candidate.gone
               FOR UPDATE SKIP LOCKED) execution ON true),
    met AS MATERIALIZED (
        SELECT decided.workspace_id, count(*) AS candidates, count(*) FILTER (WHERE granted)::int AS granted,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room) AS full_definitions,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room AND NOT gated) AS never_limited,
               bool_or(NOT granted AND (gated OR NOT key_has_room)) AS put_back
          FROM decided GROUP BY decided.workspace_id),
    claimed AS (
        UPDATE forebay.execution_queue queued
           SET stage = forebay.stage_slot(), claim_id = p_claim, claimed_by = p_process, claimed_at = v_now,
               status = CASE WHEN queued.id = ANY (ARRAY(SELECT decided.id FROM decided WHERE begins)) THEN 'DISPATCHED' ELSE 'CLAIMED' END,
               dispatched_at = CASE WHEN queued.id = ANY (ARRAY(SELECT decided.id FROM decided WHERE begins)) THEN v_now END,
               gated = queued.gated OR queued.workflow_definition_id = ANY (
                   ARRAY(SELECT DISTINCT definition_id FROM decided WHERE definition_limit IS NOT NULL))
         WHERE queued.id = ANY (ARRAY(SELECT decided.id FROM decided WHERE granted)) AND queued.status = 'PENDING'),
    put_back AS (
        UPDATE forebay.execution_queue queued
           SET gated = true,
               stage = CASE WHEN queued.id = ANY (ARRAY(SELECT decided.id FROM decided WHERE NOT granted AND key_has_room))
                            THEN forebay.stage_waits_for_definition() ELSE forebay.stage_waits_for_key() END
         WHERE queued.id = ANY (ARRAY(SELECT decided.id FROM decided WHERE NOT granted AND (decided.gated OR NOT key_has_room)))
           AND queued.status = 'PENDING'),
    begun AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'RUNNING', engine = p_engine, owner = p_process, owner_epoch = owner_epoch + 1,
               started_at = v_now,
               deadline_at = least(execution.deadline_at, v_now + make_interval(secs => execution.timeout_ms / 1000.0))
         WHERE execution.id = ANY (ARRAY(SELECT decided.id FROM decided WHERE begins)) AND execution.status = 'PENDING'
        RETURNING execution.id, execution.workspace_id),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING' FROM begun HAVING count(*) > 0)
    SELECT 'item', decided.workspace_id, decided.id, decided.definition_id, coalesce(decided.version_id, waits.version_id),
           decided.attempt_count, decided.in_doubt, decided.gone, coalesce(waits.semantics > p_semantics, false), decided.begins,
           decided.owner_epoch + 1, decided.input, decided.trigger, decided.accepted_at,
           (extract(epoch FROM decided.deadline_at - v_now) * 1000)::bigint,
           NULL::int, NULL::int, NULL::boolean, NULL::boolean, NULL::uuid[], NULL::int,
           coalesce(decided.trace_context, waits.trace_context), (extract(epoch FROM v_now - decided.since) * 1000)::bigint
      FROM decided LEFT JOIN LATERAL (
            SELECT execution.version_id, execution.semantics, execution.trace_context FROM forebay.workflow_execution execution
             WHERE execution.id = decided.id AND NOT decided.begins LIMIT 1) waits ON true
     WHERE decided.granted
    UNION ALL
    SELECT 'workspace', workspaces.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           workspaces.running + coalesce(met.granted, 0), workspaces.max_running,
           NOT workspaces.closed AND (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue ready
                WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id AND ready.stage = forebay.stage_ready()
                LIMIT 1 + coalesce(met.candidates, 0)) seen) > coalesce(met.candidates, 0),
           coalesce(met.put_back, false),
           -- A few that were let through too many are put back by claims alone; when nothing else
           -- is met, there may be many.
           CASE WHEN met.granted > 0 THEN met.never_limited ELSE met.full_definitions END,
           workspaces.weight::int, NULL, NULL
      FROM workspaces LEFT JOIN met ON met.workspace_id = workspaces.id
    UNION ALL
    SELECT 'busy', asked.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM unnest(p_workspaces) AS asked(id)
     WHERE NOT forebay.shard_of(asked.id) = ANY (v_shards);
END $$;

CREATE FUNCTION forebay_r1.claim_deliveries(p_claim uuid, p_after uuid, p_each integer, p_limit integer, p_steps integer, p_lease_s double precision) RETURNS TABLE(delivery uuid, place uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_place uuid := p_after;
    v_sending int;
    v_left int := p_limit;
    v_claimed int;
BEGIN
    FOR step IN 1..p_steps LOOP
        EXIT WHEN v_left <= 0;
        v_place := (SELECT d.workspace_id FROM forebay.webhook_delivery d WHERE d.due_at IS NOT NULL AND d.workspace_id > v_place
                     ORDER BY d.workspace_id LIMIT 1);
        EXIT WHEN v_place IS NULL;
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(forebay.lock_deliveries(), hashtext(v_place::text));
        v_sending := (SELECT count(*) FROM forebay.webhook_delivery d
                       WHERE d.workspace_id = v_place AND d.status = 'SENDING' AND d.due_at > clock_timestamp());
        RETURN QUERY
        UPDATE forebay.webhook_delivery d
           SET status = 'SENDING', claim_id = p_claim, attempts = d.attempts + 1,
               due_at = clock_timestamp() + make_interval(secs => p_lease_s)
         WHERE d.id = ANY (ARRAY(
               SELECT d.id FROM forebay.webhook_delivery d
                WHERE d.workspace_id = v_place AND d.due_at <= clock_timestamp()
                ORDER BY d.due_at, d.id LIMIT greatest(least(p_each, greatest((v_left + v_sending) / 4, 1)) - v_sending, 0) FOR UPDATE SKIP LOCKED))
           AND d.status IN ('PENDING', 'SENDING')
        RETURNING d.id, NULL::uuid;
        GET DIAGNOSTICS v_claimed = ROW_COUNT;
        v_left := v_left - v_claimed;
    END LOOP;
    RETURN QUERY SELECT NULL::uuid, v_place;
END $$;

CREATE FUNCTION forebay_r1.claim_jobs(p_workspace uuid, p_types text[], p_id uuid, p_worker text, p_lease_s integer, p_limit integer) RETURNS TABLE(job public.workflow_queue_projection, workspace_id uuid, claim uuid, lease_until timestamp with time zone)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    t record;
    -- More than are asked for: other workers may hold the first ones at this moment.
    v_candidates uuid[] := CASE
        WHEN p_id IS NOT NULL THEN ARRAY[p_id]
        WHEN p_types IS NOT NULL THEN ARRAY(SELECT forebay_r1.pending_jobs_of_types(p_workspace, p_types, p_limit * 4 + 100)) END;
    v_bytes bigint := 0;
BEGIN
    FOR t IN
        SELECT p.id FROM forebay.workflow_queue_job j JOIN public.workflow_queue_projection p ON p.id = j.id
         WHERE v_candidates IS NULL AND j.pending_since IS NOT NULL AND p.status = 'pending'
           AND (p_workspace IS NULL OR j.workspace_id = p_workspace)
         ORDER BY j.pending_since, j.id LIMIT p_limit FOR UPDATE OF p SKIP LOCKED
    LOOP
        v_candidates := v_candidates || t.id;
    END LOOP;
    FOR t IN
        SELECT p.id, octet_length(p.event_data::text) AS bytes
          FROM forebay.workflow_queue_job j JOIN public.workflow_queue_projection p ON p.id = j.id
         WHERE j.id = ANY (v_candidates) AND j.pending_since IS NOT NULL AND p.status = 'pending'
           AND (p_workspace IS NULL OR j.workspace_id = p_workspace)
           AND (p_types IS NULL OR p.event_type = ANY (p_types)
                OR EXISTS (SELECT 1 FROM unnest(p_types) AS t(type) WHERE t.type LIKE '%.*' AND starts_with(p.event_type, left(t.type, -1))))
         ORDER BY j.pending_since, j.id LIMIT p_limit FOR UPDATE OF p SKIP LOCKED
    LOOP
        EXIT WHEN v_bytes > 1048576;
        v_bytes := v_bytes + coalesce(t.bytes, 0);
        UPDATE public.workflow_queue_projection p SET status = 'processing', worker_id = p_worker, claimed_at = now()
         WHERE p.id = t.id AND p.status = 'pending';
        UPDATE forebay.workflow_queue_job j
           SET held = 'api', claim_id = gen_random_uuid(), claim_lease_s = coalesce(p_lease_s, j.lease_s),
               lease_until = clock_timestamp() + make_interval(secs => coalesce(p_lease_s, j.lease_s))
         WHERE j.id = t.id AND j.held = 'sql';
        RETURN QUERY SELECT p, j.workspace_id, j.claim_id, j.lease_until
          FROM public.workflow_queue_projection p JOIN forebay.workflow_queue_job j ON j.id = p.id WHERE p.id = t.id;
    END LOOP;
END $$;

CREATE FUNCTION forebay_r1.claim_tasks(p_queues text[], p_workspace uuid, p_after uuid, p_worker text, p_limit integer, p_lease_s double precision) RETURNS TABLE(task uuid, claim uuid, place uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_place uuid := coalesce(p_workspace, p_after, v_nil);
    v_served uuid;
    v_next uuid;
    v_ids uuid[];
    v_want int;
    v_at timestamptz;
    v_id uuid;
    v_left int := p_limit;
    v_each int := CASE WHEN p_workspace IS NULL THEN greatest(p_limit / 8, 1) ELSE p_limit END;
    v_taken int;
    v_step int;
    v_bytes bigint := 0;
    -- What this round of the workspaces has brought; a round from the middle is followed by one from the start.
    v_round int := 1;
BEGIN
    FOR step IN 1..1000 LOOP
        EXIT WHEN v_left <= 0;
        v_next := CASE WHEN p_workspace IS NOT NULL THEN p_workspace ELSE (
            SELECT n.id FROM unnest(p_queues) AS q(name)
             CROSS JOIN LATERAL (SELECT a.workspace_id AS id FROM forebay.workflow_execution_ask a
                                  WHERE a.status = 'OPEN' AND a.kind = 'TASK' AND a.queue = q.name AND a.workspace_id > v_place
                                  ORDER BY a.workspace_id LIMIT 1) n
             ORDER BY n.id LIMIT 1) END;
        IF v_next IS NULL THEN
            EXIT WHEN v_place = v_nil OR v_round = 0;
            v_place := v_nil;
            v_round := 0;
            CONTINUE;
        END IF;
        v_place := v_next;
        v_want := least(v_each, v_left);
        v_at := '-infinity';
        v_id := v_nil;
        -- The oldest of all the queues; those that another claim has in hand at this moment are passed over for the
        -- next ones.
        WHILE v_want > 0 LOOP
            -- A few at a time, because the answer ends where it becomes large.
            v_step := least(v_want, 8);
            SELECT array_agg(n.id), (array_agg(n.opened_at ORDER BY n.opened_at DESC, n.id DESC))[1],
                   (array_agg(n.id ORDER BY n.opened_at DESC, n.id DESC))[1]
              INTO v_ids, v_at, v_id
              FROM (SELECT n.id, n.opened_at FROM (SELECT DISTINCT name FROM unnest(p_queues) AS q(name)) q
                     CROSS JOIN LATERAL (
                           SELECT a.id, a.opened_at FROM forebay.workflow_execution_ask a
                            WHERE a.status = 'OPEN' AND a.kind = 'TASK' AND a.queue = q.name AND a.workspace_id = v_place
                              AND (a.opened_at, a.id) > (v_at, v_id) AND (a.expires_at IS NULL OR a.expires_at > clock_timestamp())
                            ORDER BY a.opened_at, a.id LIMIT v_step) n
                     ORDER BY n.opened_at, n.id LIMIT v_step) n;
            EXIT WHEN v_ids IS NULL;
            RETURN QUERY
            UPDATE forebay.workflow_execution_ask a
               SET status = 'CLAIMED', claim_id = gen_random_uuid(), worker = p_worker, claim_lease_s = coalesce(p_lease_s, a.lease_s),
                   lease_until = clock_timestamp() + make_interval(secs => coalesce(p_lease_s, a.lease_s)),
                   deliveries = a.deliveries + 1, progress = NULL
             WHERE a.id = ANY (ARRAY(
                   SELECT a.id FROM forebay.workflow_execution_ask a WHERE a.id = ANY (v_ids) AND a.status = 'OPEN' FOR UPDATE SKIP LOCKED))
               AND a.status = 'OPEN'
            RETURNING a.id, a.claim_id, NULL::uuid;
            GET DIAGNOSTICS v_taken = ROW_COUNT;
            v_served := CASE WHEN v_taken > 0 THEN v_place ELSE v_served END;
            v_want := v_want - v_taken;
            v_left := v_left - v_taken;
            v_round := v_round + v_taken;
            v_bytes := v_bytes + coalesce((
                SELECT sum(octet_length(a.input::text)) FROM forebay.workflow_execution_ask a
                 WHERE a.id = ANY (v_ids) AND a.status = 'CLAIMED' AND a.worker = p_worker), 0);
            IF v_bytes > 1048576 THEN
                v_want := 0;
                v_left := 0;
            END IF;
        END LOOP;
        EXIT WHEN p_workspace IS NOT NULL;
    END LOOP;
    RETURN QUERY SELECT NULL::uuid, NULL::uuid, v_served;
END $$;

CREATE FUNCTION forebay_r1.close_waits(p_ids uuid[]) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    UPDATE forebay.workflow_execution_ask a SET status = 'CLOSED', lease_until = NULL, look = false
     WHERE a.execution_id = ANY (p_ids) AND a.status IN ('OPEN', 'CLAIMED')
$$;

CREATE FUNCTION forebay_r1.complete(p_ids uuid[], p_outcomes text[], p_outputs jsonb[], p_errors jsonb[], p_claims uuid[], p_from text, p_actor text) RETURNS TABLE(execution uuid, applied boolean, ticket boolean, workspace uuid, freed boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_ended uuid[];
    v_over record;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution asked WHERE asked.id = ANY (p_ids) ORDER BY asked.id FOR UPDATE;
    WITH asked AS (
        SELECT * FROM unnest(p_ids, p_outcomes, p_outputs, p_errors, p_claims) AS asked(id, outcome, output, error, claim)),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = asked.outcome, output = asked.output, error = asked.error, completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint,
               owner = NULL, owner_epoch = owner_epoch + 1, wake_at = NULL
          FROM asked
         WHERE execution.id = asked.id AND execution.status IN ('PENDING', 'RUNNING') AND execution.status = coalesce(p_from, execution.status)
           AND (asked.claim IS NULL OR EXISTS (
                SELECT 1 FROM forebay.execution_queue queued
                 WHERE queued.id = asked.id AND queued.status = 'CLAIMED' AND queued.claim_id = asked.claim))
        RETURNING execution.id, execution.workspace_id, execution.status),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status FROM ended GROUP BY ended.status)
    SELECT coalesce(array_agg(ended.id), '{}') INTO v_ended FROM ended;

    SELECT array_agg(execution.id) AS ids, array_agg(execution.status) AS outcomes, array_agg(execution.error) AS errors,
           array_agg(execution.workspace_id) AS workspaces,
           array_agg(execution.id) FILTER (WHERE execution.trigger ->> 'type' = 'event') AS of_events,
           array_agg(execution.id) FILTER (WHERE execution.parent IS NOT NULL OR execution.descendants > 0) AS of_trees
      INTO v_over
      FROM (SELECT DISTINCT each.id FROM unnest(p_ids) AS each(id)) asked
     CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution stored WHERE stored.id = asked.id LIMIT 1) execution
     WHERE execution.status NOT IN ('PENDING', 'RUNNING');

    IF v_ended <> '{}' AND EXISTS (
        SELECT 1 FROM forebay.webhook live WHERE live.workspace_id = ANY (v_over.workspaces) AND live.disabled_at IS NULL) THEN
        PERFORM forebay_r1.add_deliveries(v_ended);
    END IF;

    RETURN QUERY
    SELECT terminal.id, terminal.id = ANY (v_ended), followed.ticket, terminal.workspace_id, followed.freed
      FROM unnest(v_over.ids, v_over.workspaces) AS terminal(id, workspace_id)
      JOIN forebay_r1.after_end(v_over.ids, v_over.outcomes, v_over.errors, v_over.of_events, v_over.of_trees, true, p_actor) AS followed
        ON followed.execution = terminal.id
    UNION ALL
    SELECT missing.id, NULL, true, missing.workspace_id, missing.freed
      FROM forebay_r1.fail_items_of_missing(p_ids, p_claims, p_actor) AS missing;
END $$;

CREATE FUNCTION forebay_r1.derived_event_id(p_workspace uuid, p_seed uuid) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
    SELECT overlay(overlay(substr(encode(
               sha256(s.secret || coalesce(uuid_send(p_workspace), '') || uuid_send(p_seed)), 'hex'), 1, 32)
               PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid
      FROM forebay.event_secret s
$$;

CREATE FUNCTION forebay_r1.differing_jobs() RETURNS TABLE(id uuid, how text)
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(f.id, p.id), CASE WHEN p.id IS NULL THEN 'missing' WHEN f.id IS NULL THEN 'extra' ELSE 'changed' END
      FROM forebay_r1.folded_jobs() f FULL JOIN public.workflow_queue_projection p ON p.id = f.id
     WHERE p.id IS NULL OR f.id IS NULL OR f IS DISTINCT FROM p
$$;

CREATE FUNCTION forebay_r1.drop_unused_releases(p_own integer, p_unused_s double precision) RETURNS SETOF integer
    LANGUAGE plpgsql
    AS $$
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
           AND NOT EXISTS (SELECT 1 FROM forebay.process WHERE process.release = old.number AND process.seen_at >= v_unused_since)
         ORDER BY old.number
    LOOP
        BEGIN
            FOR v_function IN
                SELECT own.oid::regprocedure AS name FROM pg_catalog.pg_proc own WHERE own.pronamespace = to_regnamespace(v_release.schema)
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
END $$;

CREATE FUNCTION forebay_r1.due_jobs(p_limit integer) RETURNS TABLE(id uuid, retries integer, event_id uuid, event_type text, event_data jsonb, event_metadata jsonb, stream_id uuid, stream_type text, stream_version integer, created timestamp with time zone, workspace uuid, definition uuid, definition_workspace uuid, filter text, input jsonb, workflow_id text)
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    WITH b AS MATERIALIZED (
        SELECT b.*, d.workspace_id AS definition_workspace
          FROM forebay_r1.bindings_of_pending_jobs() AS w(id)
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.event_binding b WHERE b.id = w.id LIMIT 1) b
         CROSS JOIN LATERAL (SELECT d.workspace_id FROM forebay.workflow_definition d WHERE d.id = b.workflow_definition_id LIMIT 1) d
         CROSS JOIN LATERAL (SELECT j.due_at FROM forebay.workflow_queue_job j
                              WHERE j.binding_id = b.id AND j.pending_since IS NOT NULL AND j.due_at <= now()
                              ORDER BY j.due_at LIMIT 1) first
         WHERE b.full_until IS NULL OR b.full_until <= now()
         ORDER BY first.due_at, b.id LIMIT p_limit),
    t AS MATERIALIZED (
        SELECT j.id, j.workspace_id, j.event_workspace_id, j.due_at, b.id AS binding_id
          FROM b
         CROSS JOIN LATERAL (
            SELECT j.*, row_number() OVER (ORDER BY j.due_at, j.id) AS turn
              FROM (SELECT j.id, j.workspace_id, j.event_workspace_id, j.due_at FROM forebay.workflow_queue_job j
                     WHERE j.binding_id = b.id AND j.pending_since IS NOT NULL AND j.due_at <= now()
                     ORDER BY j.due_at, j.id LIMIT p_limit) j) j
         ORDER BY j.turn, j.due_at, j.id LIMIT p_limit)
    SELECT p.id, p.retry_count, p.event_id, p.event_type, p.event_data, coalesce(e.event_metadata, '{}'), p.stream_id, p.stream_type,
           e.stream_version, coalesce(e.created_at, p.created_at), t.workspace_id, b.workflow_definition_id, b.definition_workspace,
           b.filter, b.input, b.workflow_id
      FROM t
      JOIN b ON b.id = t.binding_id
      JOIN public.workflow_queue_projection p ON p.id = t.id AND p.status = 'pending'
      LEFT JOIN public.domain_events e ON e.id = p.event_id AND e.workspace_id IS NOT DISTINCT FROM t.event_workspace_id
     ORDER BY t.due_at, t.id
$$;

CREATE FUNCTION forebay_r1.end_descendants(p_ids uuid[], p_actor text) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_ended record;
    v_depth smallint;
BEGIN
    WITH RECURSIVE descendants (id) AS (
        SELECT child.id FROM forebay.workflow_execution child WHERE child.parent = ANY (p_ids) AND child.completed_at IS NULL
        UNION ALL
        -- OFFSET 0: a probe for each, never a join that reads every open execution.
        SELECT child.id FROM descendants CROSS JOIN LATERAL (
            SELECT below.id FROM forebay.workflow_execution below
             WHERE below.parent = descendants.id AND below.completed_at IS NULL OFFSET 0) child),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'CANCELED', completed_at = clock_timestamp(), owner = NULL, owner_epoch = owner_epoch + 1, wake_at = NULL,
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint
         WHERE execution.id = ANY (ARRAY(SELECT descendants.id FROM descendants)) AND execution.status IN ('PENDING', 'RUNNING')
        RETURNING execution.id, execution.workspace_id, execution.status, execution.depth),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status FROM ended GROUP BY ended.status)
    SELECT array_agg(ended.id) AS ids, array_agg(ended.depth) AS depths INTO v_ended FROM ended;
    -- The deepest first: what is not known of a child is not known of the node that made it.
    FOR v_depth IN SELECT DISTINCT level.depth FROM unnest(v_ended.depths) AS level(depth) ORDER BY level.depth DESC LOOP
        PERFORM 1 FROM forebay_r1.after_end(
            ARRAY(SELECT ended.id FROM unnest(v_ended.ids, v_ended.depths) AS ended(id, depth) WHERE ended.depth = v_depth),
            ARRAY(SELECT 'CANCELED' FROM unnest(v_ended.depths) AS ended(depth) WHERE ended.depth = v_depth),
            ARRAY(SELECT NULL::jsonb FROM unnest(v_ended.depths) AS ended(depth) WHERE ended.depth = v_depth), NULL, NULL, true, p_actor);
    END LOOP;
END $$;

CREATE FUNCTION forebay_r1.end_job(p_id uuid, p_workspace uuid, p_claim uuid, p_result jsonb, p_error text, p_stack text) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    stands text := forebay_r1.job_standing(p_id, p_workspace, p_claim);
BEGIN
    IF stands = 'held' THEN
        PERFORM forebay_r1.finish_job(p_id, p_result, p_error, p_stack, true);
        RETURN 'ended';
    END IF;
    -- The same end, told again.
    RETURN CASE WHEN stands = CASE WHEN p_error IS NULL THEN 'completed' ELSE 'failed' END THEN 'ended'
                WHEN stands IS NOT NULL THEN 'lost' END;
END $$;

CREATE FUNCTION forebay_r1.end_jobs_of(p_executions uuid[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    e record;
    done int := 0;
BEGIN
    FOR e IN SELECT x.id, x.status, x.output, x.error, j.id AS job
               FROM unnest(p_executions) AS t(id) JOIN forebay.workflow_execution x ON x.id = t.id
               LEFT JOIN forebay.workflow_queue_job j ON j.claim_id = x.id AND j.held = 'ours'
              WHERE x.completed_at IS NOT NULL ORDER BY x.id
    LOOP
        BEGIN
            PERFORM 1 FROM public.workflow_queue_projection p WHERE p.id = e.job FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND AND EXISTS (SELECT 1 FROM public.workflow_queue_projection p WHERE p.id = e.job);
            IF e.job IS NOT NULL AND forebay_r1.finish_job(e.job, coalesce(e.output, '{}'),
                CASE WHEN e.status = 'COMPLETED' THEN NULL
                     WHEN e.status = 'CANCELED' THEN 'the execution was canceled'
                     ELSE coalesce(e.error ->> 'message', 'the execution ended ' || e.status) END,
                CASE WHEN e.status <> 'COMPLETED' THEN forebay_r1.failure_chain(e.id, e.error) END,
                e.status <> 'CANCELED')
            THEN
                done := done + 1;
            ELSE
                RAISE WARNING 'execution % came from an event and its job is not processing', e.id;
            END IF;
        EXCEPTION
            WHEN OTHERS THEN
                IF forebay.is_transient(SQLSTATE) THEN
                    RAISE;
                END IF;
                RAISE WARNING 'the job of execution % could not be ended: %', e.id, SQLERRM;
        END;
    END LOOP;
    RETURN done;
END $$;

CREATE FUNCTION forebay_r1.end_task(p_task uuid, p_workspace uuid, p_claim uuid, p_outcome text, p_output jsonb, p_error jsonb) RETURNS TABLE(told text, engine text, holder uuid, owner uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    a forebay.workflow_execution_ask;
    v_lives boolean;
    v_told text;
BEGIN
    SELECT * INTO a FROM forebay.workflow_execution_ask a
     WHERE a.id = p_task AND a.kind = 'TASK' AND a.workspace_id = coalesce(p_workspace, a.workspace_id);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', NULL::text, NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_lives := forebay_r1.lock_tree(a.execution_id);
    SELECT * INTO a FROM forebay.workflow_execution_ask a WHERE a.id = p_task FOR UPDATE;
    v_told := CASE WHEN a.id IS NULL THEN 'missing'
                   WHEN a.claim_id = p_claim AND a.status = 'CLAIMED' AND v_lives
                        AND coalesce(a.expires_at > clock_timestamp(), true) THEN 'accepted'
                   WHEN a.claim_id = p_claim AND a.status IN ('ANSWERED', 'TAKEN')
                        THEN CASE WHEN a.outcome = p_outcome THEN 'repeat' ELSE 'answered' END
                   WHEN a.ended_claim = p_claim THEN 'repeat'
                   ELSE 'lost' END;
    UPDATE forebay.workflow_execution_ask a
       SET status = 'ANSWERED', outcome = p_outcome, output = p_output, error = p_error, answered_by = a.worker,
           answered_at = clock_timestamp(), lease_until = NULL
     WHERE a.id = p_task AND a.status = 'CLAIMED' AND a.claim_id = p_claim AND v_told = 'accepted';
    RETURN QUERY SELECT v_told, CASE WHEN v_told = 'accepted' THEN forebay_r1.wake_run(a.holder) END, a.holder,
                        (SELECT e.owner FROM forebay.workflow_execution e WHERE e.id = a.holder);
END $$;

CREATE FUNCTION forebay_r1.expire_waits(p_limit integer, p_most integer, p_error jsonb) RETURNS TABLE(what text, engine text, holder uuid, owner uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_holders uuid[];
BEGIN
    RETURN QUERY
    UPDATE forebay.workflow_execution_ask a
       SET status = 'OPEN', lost = a.lost + 1, claim_id = NULL, worker = NULL, claim_lease_s = NULL, lease_until = NULL
     WHERE a.id = ANY (ARRAY(
           SELECT a.id FROM forebay.workflow_execution_ask a
            WHERE a.status = 'CLAIMED' AND a.lease_until <= clock_timestamp() AND a.lost < p_most - 1
            ORDER BY a.lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED))
       AND a.status = 'CLAIMED'
    RETURNING 'lost', NULL::text, NULL::uuid, NULL::uuid;

    v_holders := ARRAY(
        SELECT e.id FROM forebay.workflow_execution e
         WHERE e.id = ANY (ARRAY(
               SELECT a.holder FROM forebay.workflow_execution_ask a
                WHERE a.status = 'CLAIMED' AND a.lease_until <= clock_timestamp() AND a.lost >= p_most - 1
                ORDER BY a.lease_until LIMIT p_limit) || ARRAY(
               SELECT a.holder FROM forebay.workflow_execution_ask a
                WHERE a.status IN ('OPEN', 'CLAIMED') AND a.expires_at <= clock_timestamp()
                ORDER BY a.expires_at LIMIT p_limit))
         ORDER BY e.id FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    WITH x AS (
        UPDATE forebay.workflow_execution_ask a SET status = 'EXPIRED', lease_until = NULL, look = false
         WHERE a.holder = ANY (v_holders) AND a.status IN ('OPEN', 'CLAIMED') AND a.expires_at <= clock_timestamp()
        RETURNING 'expired' AS what, a.holder)
    SELECT x.what, forebay_r1.wake_run(x.holder), x.holder, e.owner FROM x JOIN forebay.workflow_execution e ON e.id = x.holder;
    RETURN QUERY
    WITH x AS (
        UPDATE forebay.workflow_execution_ask a
           SET status = 'ANSWERED', outcome = 'FAILED', error = p_error, answered_by = 'forebay', answered_at = clock_timestamp(),
               lost = a.lost + 1, claim_id = NULL, worker = NULL, lease_until = NULL
         WHERE a.holder = ANY (v_holders) AND a.status = 'CLAIMED' AND a.lease_until <= clock_timestamp() AND a.lost >= p_most - 1
        RETURNING 'failed' AS what, a.holder)
    SELECT x.what, forebay_r1.wake_run(x.holder), x.holder, e.owner FROM x JOIN forebay.workflow_execution e ON e.id = x.holder;
END $$;

CREATE FUNCTION forebay_r1.fail_items_of_missing(p_ids uuid[], p_claims uuid[], p_actor text) RETURNS TABLE(id uuid, workspace_id uuid, freed boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_reason constant text := 'its execution row is missing: somebody deleted it';
    failed record;
BEGIN
    WITH missing AS (
        UPDATE forebay.execution_queue q SET status = 'FAILED', stage = forebay.stage_failed(), last_error = v_reason
          FROM unnest(p_ids, p_claims) AS t(id, claim)
         WHERE q.id = t.id AND q.status <> 'FAILED' AND (t.claim IS NULL OR (q.status = 'CLAIMED' AND q.claim_id = t.claim))
           AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution e WHERE e.id = t.id)
        RETURNING q.id, q.workspace_id, q.workflow_definition_id, q.concurrency_key, q.gated, q.claim_id IS NOT NULL AS freed),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT m.workspace_id, p_actor, 'queue_item.fail', 'queue_item', m.id,
               jsonb_build_object('type', 'EXECUTION_GONE', 'message', v_reason)
          FROM missing m)
    SELECT coalesce(array_agg(m.id), '{}') AS ids, array_agg(m.workspace_id) AS of, array_agg(m.freed) AS freed,
           array_agg(m.workspace_id) FILTER (WHERE m.gated) AS workspaces,
           array_agg(m.workflow_definition_id) FILTER (WHERE m.gated) AS definitions,
           array_agg(m.concurrency_key) FILTER (WHERE m.gated) AS keys
      INTO failed FROM missing m;
    IF failed.ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM forebay_r1.end_descendants(failed.ids, p_actor);
    PERFORM forebay_r1.close_waits(failed.ids);
    IF failed.workspaces IS NOT NULL THEN
        PERFORM forebay.unblock(failed.workspaces || failed.workspaces, failed.definitions || failed.definitions,
                          failed.keys || array_fill(NULL::text, ARRAY[cardinality(failed.workspaces)]));
    END IF;
    PERFORM forebay_r1.fail_jobs_of_missing(failed.ids);
    RETURN QUERY SELECT * FROM unnest(failed.ids, failed.of, failed.freed);
END $$;

CREATE FUNCTION forebay_r1.fail_jobs_of_missing(p_executions uuid[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    t record;
    done int := 0;
BEGIN
    FOR t IN SELECT j.id, j.claim_id FROM unnest(p_executions) AS missing(id)
               JOIN forebay.workflow_queue_job j ON j.claim_id = missing.id AND j.held = 'ours'
               JOIN public.workflow_queue_projection p ON p.id = j.id ORDER BY j.id FOR UPDATE OF p SKIP LOCKED
    LOOP
        BEGIN
            IF forebay_r1.finish_job(t.id, NULL, 'the row of execution ' || t.claim_id || ' is missing: somebody deleted it', NULL, false) THEN
                done := done + 1;
            END IF;
        EXCEPTION
            WHEN OTHERS THEN
                IF forebay.is_transient(SQLSTATE) THEN
                    RAISE;
                END IF;
                RAISE WARNING 'the job of execution % could not be ended: %', t.claim_id, SQLERRM;
        END;
    END LOOP;
    RETURN done;
END $$;

CREATE FUNCTION forebay_r1.failure_chain(p_execution uuid, p_error jsonb) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT left(concat_ws(E'\n',
        (p_error ->> 'type') || coalesce(' at ' || (p_error ->> 'node'), '') || ': ' || (p_error ->> 'message'),
        (SELECT string_agg(
            concat_ws(E'\n',
                '  node ' || n.node || ', attempt ' || n.attempt || ': ' || concat_ws(': ', n.error ->> 'type', n.error ->> 'message'),
                (SELECT string_agg('    attempt ' || (a ->> 'attempt') || ' at ' || (a ->> 'at') || ': '
                                   || concat_ws(': ', a -> 'error' ->> 'type', a -> 'error' ->> 'message'), E'\n')
                   FROM jsonb_array_elements(CASE jsonb_typeof(n.earlier) WHEN 'array' THEN n.earlier ELSE '[]' END) a)), E'\n' ORDER BY n.seq)
           FROM forebay.workflow_execution_node n WHERE n.execution_id = p_execution AND n.error IS NOT NULL)), 20000)
$$;

CREATE FUNCTION forebay_r1.finish_candidates(p_claim uuid, p_candidate bigint, p_wait uuid, p_event uuid) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    UPDATE forebay.workflow_execution_candidate c SET taken_by = NULL, taken_until = NULL, more = false
     WHERE c.taken_by = p_claim AND c.id > p_candidate;
    -- Of an event the waits are read in order, of a wait the events.
    UPDATE forebay.workflow_execution_candidate c
       SET next_wait = p_wait, more = true,
           next_at = (SELECT d.created_at FROM public.domain_events d WHERE d.id = p_event AND d.workspace_id = c.workspace_id AND c.event_id IS NULL),
           next_sequence = (SELECT d.sequence FROM public.domain_events d WHERE d.id = p_event AND d.workspace_id = c.workspace_id AND c.event_id IS NULL)
     WHERE c.taken_by = p_claim AND c.id = p_candidate;
    DELETE FROM forebay.workflow_execution_candidate c WHERE c.taken_by = p_claim AND NOT c.more;
    UPDATE forebay.workflow_execution_candidate c
       SET after_wait = c.next_wait, after_at = c.next_at, after_sequence = c.next_sequence, taken_by = NULL, taken_until = NULL, more = false
     WHERE c.taken_by = p_claim AND c.more;
$$;

CREATE FUNCTION forebay_r1.finish_job(p_id uuid, p_result jsonb, p_error text, p_stack text, p_again boolean) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    ended boolean;
BEGIN
    PERFORM set_config('forebay.claim', (SELECT j.claim_id::text FROM forebay.workflow_queue_job j WHERE j.id = p_id), true);
    UPDATE public.workflow_queue_projection p
       SET status = CASE WHEN p_error IS NULL THEN 'completed' ELSE 'failed' END,
           result = CASE WHEN p_error IS NULL THEN p_result END, error_message = p_error, error_stack = p_stack
     WHERE p.id = p_id AND p.status = 'processing';
    ended := FOUND;
    PERFORM set_config('forebay.claim', '', true);
    IF NOT p_again THEN
        UPDATE forebay.workflow_queue_job j SET retry_from = NULL WHERE j.id = p_id;
    END IF;
    RETURN ended;
END $$;

CREATE FUNCTION forebay_r1.fold_event(p_sequence bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    e public.domain_events;
BEGIN
    SELECT * INTO e FROM public.domain_events d WHERE d.sequence = p_sequence AND d.processing_error IS NOT NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    BEGIN
        IF forebay.is_bound(e.event_type, e.workspace_id) THEN
            PERFORM forebay.make_job(e, forebay.binding_of(e.event_type, e.workspace_id));
        END IF;
    EXCEPTION
        WHEN OTHERS THEN
            IF forebay.is_transient(SQLSTATE) THEN
                RAISE;
            END IF;
            UPDATE public.domain_events SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
             WHERE sequence = p_sequence;
            RETURN false;
    END;
    UPDATE public.domain_events SET processing_error = NULL, processing_failed_at = NULL WHERE sequence = p_sequence;
    RETURN true;
END $$;

CREATE FUNCTION forebay_r1.fold_failed_events(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '2s'
    AS $$
DECLARE
    v_event record;
    v_done int := 0;
BEGIN
    -- The condition is the index's (domain_events_to_fold), word for word.
    FOR v_event IN SELECT e.sequence FROM public.domain_events e
                    WHERE left(e.processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
                    ORDER BY e.processing_failed_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        BEGIN
            PERFORM forebay_r1.fold_event(v_event.sequence);
            v_done := v_done + 1;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT forebay.is_transient(SQLSTATE) THEN
                    RAISE;
                END IF;
                UPDATE public.domain_events SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
                 WHERE sequence = v_event.sequence;
                EXIT;
        END;
    END LOOP;
    RETURN v_done;
END $$;

CREATE FUNCTION forebay_r1.folded_jobs() RETURNS SETOF public.workflow_queue_projection
    LANGUAGE sql STABLE
    AS $$
    SELECT (jsonb_populate_record(NULL::public.workflow_queue_projection,
        coalesce(jsonb_build_object('event_data', e.event_data), '{}') || a.event_data || z.event_data)).*
      FROM (SELECT DISTINCT ON (f.stream_id) f.stream_id, f.event_type, f.event_data FROM public.domain_events f
             WHERE f.stream_type = 'workflow_queue' ORDER BY f.stream_id, f.stream_version DESC) z
      JOIN public.domain_events a ON a.stream_id = z.stream_id AND a.stream_type = 'workflow_queue' AND a.stream_version = 1
      LEFT JOIN LATERAL forebay.event_of((a.event_data ->> 'event_id')::uuid,
           coalesce((a.event_metadata ->> 'event_workspace_id')::uuid, a.workspace_id),
           (a.event_data ->> 'stream_id')::uuid, a.event_data ->> 'stream_type', a.event_data ->> 'event_type') e ON true
     WHERE z.event_type <> 'workflow.queue.retired'
$$;

CREATE FUNCTION forebay_r1.gather_iterations(p_holder uuid, p_owner uuid, p_epoch bigint, p_execution uuid, p_node text, p_collect boolean, p_most bigint, p_looks text) RETURNS TABLE(held boolean, large boolean, output jsonb)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    made jsonb;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution e
     WHERE e.id = p_holder AND e.owner = p_owner AND e.owner_epoch = p_epoch AND e.status = 'RUNNING' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, false, NULL::jsonb;
        RETURN;
    END IF;
    IF (SELECT sum(octet_length(CASE n.status WHEN 'COMPLETED' THEN n.output::text WHEN 'FAILED' THEN n.error::text END))
          FROM forebay.workflow_execution_node n
         WHERE n.execution_id = p_execution AND n.node = p_node AND n.iteration > 0) > p_most THEN
        RETURN QUERY SELECT true, true, NULL::jsonb;
        RETURN;
    END IF;
    SELECT jsonb_build_object('count', count(*), 'failed', count(*) FILTER (WHERE n.status = 'FAILED'), 'items',
               coalesce(jsonb_agg(CASE WHEN n.status = 'COMPLETED' THEN n.output END ORDER BY n.iteration), '[]'))
           || CASE WHEN p_collect THEN jsonb_build_object('errors', coalesce(
                  jsonb_agg(jsonb_build_object('index', n.iteration - 1, 'error', n.error) ORDER BY n.iteration)
                      FILTER (WHERE n.status = 'FAILED'), '[]')) ELSE '{}' END
      INTO made
      FROM forebay.workflow_execution_node n
     WHERE n.execution_id = p_execution AND n.node = p_node AND n.iteration > 0;
    UPDATE forebay.workflow_execution_node n SET output = made
     WHERE n.execution_id = p_execution AND n.node = p_node AND n.iteration = 0 AND n.status = 'RUNNING';
    RETURN QUERY SELECT true, false, CASE p_looks WHEN 'all' THEN made WHEN 'some' THEN made - 'items' END;
END $$;

CREATE FUNCTION forebay_r1.heartbeat(p_process uuid, p_dispatches boolean, p_has_room boolean, p_waiting integer, p_lease_s double precision, p_dead_after_s double precision) RETURNS TABLE(what text, shard smallint, id uuid, runs bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
BEGIN
    UPDATE forebay.process p
       SET seen_at = clock_timestamp(), dispatching = p_dispatches, has_room = p_has_room, waiting_runs = p_waiting
     WHERE p.id = p_process AND p.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'gone', NULL::smallint, p_process, NULL::bigint;
        RETURN;
    END IF;
    IF p_dispatches THEN
        RETURN QUERY
        WITH fair AS MATERIALIZED (
            SELECT ceil(64.0 / greatest(1, (
                SELECT count(*) FROM forebay.process p
                 WHERE p.id <> p_process AND p.dispatching AND p.ended_at IS NULL
                   AND p.seen_at > clock_timestamp() - make_interval(secs => p_lease_s)) + 1))::int AS share),
        mine AS MATERIALIZED (
            SELECT o.shard, count(*) OVER () AS held, row_number() OVER (ORDER BY o.shard) AS place
              FROM forebay.shard_owner o WHERE o.owner = p_process),
        free AS MATERIALIZED (
            SELECT o.shard FROM forebay.shard_owner o
             WHERE o.until <= clock_timestamp() AND o.owner IS DISTINCT FROM p_process
             ORDER BY random() LIMIT greatest((SELECT share FROM fair) - (SELECT count(*) FROM mine), 0)
             FOR UPDATE SKIP LOCKED),
        wanted AS (
            SELECT mine.shard, mine.held <= fair.share OR mine.place > 1 AS keep FROM mine, fair
            UNION ALL SELECT free.shard, true FROM free),
        leased AS (
            UPDATE forebay.shard_owner o
               SET owner = CASE WHEN wanted.keep THEN p_process END,
                   until = CASE WHEN wanted.keep THEN clock_timestamp() + make_interval(secs => p_lease_s) ELSE '-infinity' END
              FROM wanted WHERE o.shard = wanted.shard AND (o.owner = p_process OR o.until <= clock_timestamp())
            RETURNING o.shard, wanted.keep)
        SELECT 'shard', leased.shard, NULL::uuid, NULL::bigint FROM leased WHERE leased.keep;
    END IF;
    IF p_dispatches AND p_has_room THEN
        RETURN QUERY
        WITH with_room AS MATERIALIZED (
            SELECT p.id, row_number() OVER (ORDER BY p.id) - 1 AS place, count(*) OVER () AS many FROM forebay.process p
             WHERE p.dispatching AND p.has_room AND p.ended_at IS NULL
               AND p.seen_at > clock_timestamp() - make_interval(secs => p_lease_s))
        SELECT 'claim', o.shard, NULL::uuid, NULL::bigint
          FROM forebay.shard_owner o CROSS JOIN with_room me
         WHERE me.id = p_process AND o.shard % me.many = me.place
           AND NOT EXISTS (SELECT 1 FROM with_room w WHERE w.id = o.owner);
    END IF;
    RETURN QUERY
    SELECT 'waiting', NULL::smallint, NULL::uuid, coalesce(sum(p.waiting_runs), 0)::bigint FROM forebay.process p
     WHERE p.ended_at IS NULL AND p.seen_at > clock_timestamp() - make_interval(secs => p_lease_s);
    RETURN QUERY
    SELECT 'cancel', NULL::smallint, e.id, NULL::bigint FROM forebay.workflow_execution e
     WHERE e.owner = p_process AND e.cancel_requested_at IS NOT NULL AND e.completed_at IS NULL LIMIT 1000;
    RETURN QUERY
    SELECT 'wake', NULL::smallint, e.id, NULL::bigint FROM forebay.workflow_execution e
     WHERE e.owner = p_process AND e.wake_at <= clock_timestamp() AND e.cancel_requested_at IS NULL LIMIT 1000;
    RETURN QUERY
    SELECT 'dead', NULL::smallint, p.id, NULL::bigint FROM forebay.process p
     WHERE p.id <> p_process AND (p.ended_at > clock_timestamp() - interval '1 minute'
           OR (p.ended_at IS NULL AND p.seen_at < clock_timestamp() - make_interval(secs => p_dead_after_s)))
     LIMIT 100;
END $$;

CREATE FUNCTION forebay_r1.heartbeat_job(p_id uuid, p_workspace uuid, p_claim uuid, p_lease_s integer, p_workflow_id text, p_run_id text) RETURNS TABLE(answer text, lease_until timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    stands text := forebay_r1.job_standing(p_id, p_workspace, p_claim);
BEGIN
    IF stands = 'held' THEN
        IF p_workflow_id IS NOT NULL OR p_run_id IS NOT NULL THEN
            UPDATE public.workflow_queue_projection p
               SET workflow_id = coalesce(p_workflow_id, p.workflow_id), workflow_run_id = coalesce(p_run_id, p.workflow_run_id)
             WHERE p.id = p_id AND p.status = 'processing';
        END IF;
        RETURN QUERY
        UPDATE forebay.workflow_queue_job j
           SET lease_until = clock_timestamp() + make_interval(secs => coalesce(p_lease_s, j.claim_lease_s, j.lease_s))
         WHERE j.id = p_id AND j.held = 'api' AND j.claim_id = p_claim RETURNING 'held', j.lease_until;
        RETURN;
    END IF;
    RETURN QUERY SELECT stands, NULL::timestamptz;
END $$;

CREATE FUNCTION forebay_r1.is_unknown(p_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (SELECT 1 FROM forebay.workflow_execution_node node WHERE node.execution_id = p_id AND node.status = 'UNKNOWN')
$$;

CREATE FUNCTION forebay_r1.job_standing(p_id uuid, p_workspace uuid, p_claim uuid) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    t record;
BEGIN
    SELECT p.status, j.claim_id, j.held INTO t FROM public.workflow_queue_projection p JOIN forebay.workflow_queue_job j ON j.id = p.id
     WHERE p.id = p_id AND (p_workspace IS NULL OR j.workspace_id = p_workspace) FOR UPDATE OF p, j;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN CASE WHEN t.claim_id IS DISTINCT FROM p_claim OR t.held = 'ours' THEN 'lost' WHEN t.status = 'processing' THEN 'held' ELSE t.status END;
END $$;

CREATE FUNCTION forebay_r1.list_executions(p_workspace uuid, p_definitions uuid[], p_statuses text[], p_from timestamp with time zone, p_before timestamp with time zone, p_before_id uuid, p_limit bigint, p_ids uuid[]) RETURNS TABLE(id uuid, workspace_id uuid, workflow_definition_id uuid, version_id uuid, status text, error jsonb, priority smallint, concurrency_key text, created_at timestamp with time zone, started_at timestamp with time zone, completed_at timestamp with time zone, duration_ms bigint, cancel_requested_at timestamp with time zone, version_number integer, definition_name text)
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    SELECT e.id, e.workspace_id, e.workflow_definition_id, e.version_id, e.status, e.error, e.priority, e.concurrency_key,
           e.created_at, e.started_at, e.completed_at, e.duration_ms, e.cancel_requested_at,
           v.number AS version_number, d.name AS definition_name
    FROM (
        SELECT f.id, f.created_at FROM (
            SELECT p.id, p.created_at
            FROM unnest(p_statuses) AS s(status) CROSS JOIN LATERAL (
                SELECT e.id, e.created_at FROM forebay.workflow_execution e
                WHERE p_ids IS NULL AND p_definitions IS NULL AND e.depth < 1
                  AND e.workspace_id = p_workspace AND e.status = s.status COLLATE "C"
                  AND e.created_at >= coalesce(p_from, '-infinity')
                  AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit) p
            UNION ALL
            SELECT p.id, p.created_at
            FROM unnest(p_definitions) AS w(definition) CROSS JOIN unnest(p_statuses) AS s(status) CROSS JOIN LATERAL (
                SELECT e.id, e.created_at FROM forebay.workflow_execution e
                WHERE p_ids IS NULL AND e.depth < 1
                  AND e.workflow_definition_id = w.definition AND e.status = s.status COLLATE "C"
                  AND e.workspace_id = coalesce(p_workspace, e.workspace_id)
                  AND e.created_at >= coalesce(p_from, '-infinity')
                  AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit) p
            UNION ALL
            SELECT p.id, p.created_at
            FROM unnest(p_statuses) AS s(status) CROSS JOIN LATERAL (
                SELECT e.id, e.created_at FROM forebay.workflow_execution e
                WHERE p_ids IS NULL AND p_definitions IS NULL AND p_workspace IS NULL AND e.depth < 1
                  AND e.status = s.status COLLATE "C"
                  AND e.created_at >= coalesce(p_from, '-infinity')
                  AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit) p
            UNION ALL
            SELECT e.id, e.created_at
            FROM forebay.workflow_execution e
            WHERE e.id = ANY (p_ids)
              AND e.workspace_id = coalesce(p_workspace, e.workspace_id) AND e.status = ANY (p_statuses)
              AND e.created_at >= coalesce(p_from, '-infinity')
              AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)) f
        ORDER BY f.created_at DESC, f.id DESC LIMIT p_limit) p
    JOIN forebay.workflow_execution e ON e.id = p.id
    LEFT JOIN forebay.workflow_definition_version v ON v.id = e.version_id
    LEFT JOIN forebay.workflow_definition d ON d.id = e.workflow_definition_id
    ORDER BY p.created_at DESC, p.id DESC
$$;

CREATE FUNCTION forebay_r1.lock_tree(p_execution uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    PERFORM 1 FROM forebay.workflow_execution e WHERE e.id = (SELECT t.root FROM forebay.workflow_execution t WHERE t.id = p_execution) FOR UPDATE;
    PERFORM 1 FROM forebay.workflow_execution e WHERE e.id = p_execution FOR UPDATE;
    RETURN (SELECT e.completed_at IS NULL FROM forebay.workflow_execution e WHERE e.id = p_execution);
END $$;

CREATE FUNCTION forebay_r1.look_again(p_limit integer) RETURNS bigint
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    a forebay.workflow_execution_ask;
    looked bigint := 0;
BEGIN
    FOR a IN
        UPDATE forebay.workflow_execution_ask a SET look = false, look_xid = NULL
         WHERE a.id = ANY (ARRAY(
               SELECT a.id FROM forebay.workflow_execution_ask a
                WHERE a.look AND a.look_xid <= pg_snapshot_xmin(pg_current_snapshot()) AND a.status = 'OPEN'
                ORDER BY a.look_xid LIMIT p_limit FOR UPDATE SKIP LOCKED))
           AND a.status = 'OPEN'
        RETURNING a.*
    LOOP
        PERFORM forebay_r1.note_wait(a);
        looked := looked + 1;
    END LOOP;
    UPDATE forebay.workflow_execution_ask a SET look_xid = pg_current_xact_id()
     WHERE a.id = ANY (ARRAY(
           SELECT a.id FROM forebay.workflow_execution_ask a
            WHERE a.look AND a.look_xid IS NULL AND a.status = 'OPEN' LIMIT p_limit FOR UPDATE SKIP LOCKED))
       AND a.status = 'OPEN';
    RETURN looked;
END $$;

CREATE FUNCTION forebay_r1.make_child(p_holder uuid, p_owner uuid, p_epoch bigint, p_id uuid, p_parent uuid, p_node text, p_iteration integer, p_attempt integer, p_definition uuid, p_version uuid, p_input jsonb, p_trigger jsonb, p_trace text, p_timeout_ms bigint, p_engine text, p_begins boolean, p_semantics integer, p_max_depth integer, p_max_descendants integer) RETURNS TABLE(answer text, made boolean, execution uuid, workspace uuid, definition uuid, version uuid, input jsonb, trigger jsonb, created timestamp with time zone, deadline_in_ms bigint, inherits boolean, trace text, canceling boolean, status text, output jsonb, error jsonb, unknown boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    r record;
    p record;
    c record;
    v_now timestamptz;
    v_made boolean := false;
BEGIN
    SELECT e.id, e.descendants INTO r FROM forebay.workflow_execution e
     WHERE e.id = (SELECT x.root FROM forebay.workflow_execution x WHERE x.id = p_parent) FOR UPDATE;
    SELECT e.* INTO p FROM forebay.workflow_execution e WHERE e.id = p_parent AND e.status = 'RUNNING' FOR UPDATE;
    IF p.id IS NULL OR NOT p_holder IN (p.id, r.id) OR NOT EXISTS (
        SELECT 1 FROM forebay.workflow_execution e
         WHERE e.id = p_holder AND e.owner = p_owner AND e.owner_epoch = p_epoch AND e.status = 'RUNNING') THEN
        RETURN QUERY SELECT 'lost', false, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid, NULL::jsonb, NULL::jsonb,
            NULL::timestamptz, NULL::bigint, false, NULL::text, false, NULL::text, NULL::jsonb, NULL::jsonb, false;
        RETURN;
    END IF;

    SELECT e.* INTO c FROM forebay.workflow_execution e
     WHERE e.parent = p_parent AND e.parent_node = p_node AND e.parent_iteration = p_iteration AND e.parent_attempt = p_attempt;
    IF c.id IS NULL THEN
        IF p_definition IS NULL OR p.depth >= p_max_depth OR r.descendants >= p_max_descendants THEN
            RETURN QUERY SELECT CASE WHEN p_definition IS NULL THEN 'missing' WHEN p.depth >= p_max_depth THEN 'deep' ELSE 'many' END,
                false, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid, NULL::jsonb, NULL::jsonb,
                NULL::timestamptz, NULL::bigint, false, NULL::text, false, NULL::text, NULL::jsonb, NULL::jsonb, false;
            RETURN;
        END IF;
        v_now := clock_timestamp();
        v_made := true;
        INSERT INTO forebay.workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics, engine, trigger, input,
            priority, timeout_ms, created_at, started_at, deadline_at, parent, root, parent_node, parent_iteration, parent_attempt,
            depth, trace_context)
        SELECT p_id, p.workspace_id, p_definition, p_version, CASE WHEN p_begins THEN 'RUNNING' ELSE 'PENDING' END, p_semantics,
               CASE WHEN p_begins THEN p_engine END, p_trigger, p_input, p.priority, p_timeout_ms, v_now,
               CASE WHEN p_begins THEN v_now END,
               least(p.deadline_at, v_now + make_interval(secs => p_timeout_ms / 1000.0)),
               p.id, r.id, p_node, p_iteration, p_attempt, p.depth + 1, p_trace;
        UPDATE forebay.workflow_execution e SET descendants = e.descendants + 1 WHERE e.id = r.id;
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        VALUES ('execution', 'INSERT', ARRAY[p_id], ARRAY[p.workspace_id], CASE WHEN p_begins THEN 'RUNNING' ELSE 'PENDING' END);
        SELECT e.* INTO c FROM forebay.workflow_execution e WHERE e.id = p_id;
    END IF;
    RETURN QUERY
    SELECT CASE WHEN c.status IN ('PENDING', 'RUNNING') THEN 'running' ELSE 'ended' END, v_made, c.id, c.workspace_id,
           c.workflow_definition_id, c.version_id, c.input, c.trigger, c.created_at,
           (extract(epoch FROM c.deadline_at - clock_timestamp()) * 1000)::bigint, c.deadline_at >= p.deadline_at, c.trace_context,
           c.cancel_requested_at IS NOT NULL, c.status, c.output, c.error,
           c.status IN ('FAILED', 'CANCELED', 'TIMED_OUT') AND forebay_r1.is_unknown(c.id);
END $$;

CREATE FUNCTION forebay_r1.next_to_judge(p_after uuid) RETURNS uuid
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_place uuid := coalesce(p_after, v_nil);
    v_round int := 1;
    v_first bigint;
BEGIN
    FOR step IN 1..1000 LOOP
        v_place := (SELECT c.workspace_id FROM forebay.workflow_execution_candidate c
                     WHERE c.workspace_id > v_place ORDER BY c.workspace_id LIMIT 1);
        IF v_place IS NULL THEN
            EXIT WHEN v_round = 2;
            v_place := v_nil;
            v_round := 2;
            CONTINUE;
        END IF;
        v_first := (SELECT c.id FROM forebay.workflow_execution_candidate c WHERE c.workspace_id = v_place ORDER BY c.id LIMIT 1);
        PERFORM 1 FROM forebay.workflow_execution_candidate c
          WHERE c.id = v_first AND (c.taken_until IS NULL OR c.taken_until <= clock_timestamp()) FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN v_place;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE TABLE forebay.workflow_execution_ask (
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration integer DEFAULT 0 NOT NULL,
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    holder uuid,
    kind text NOT NULL,
    attempt integer NOT NULL,
    status text NOT NULL,
    event_type text,
    match text,
    events_from timestamp with time zone,
    look boolean DEFAULT false NOT NULL,
    look_xid xid8,
    queue text,
    lease_s double precision,
    input jsonb,
    opened_at timestamp with time zone,
    expires_at timestamp with time zone,
    claim_id uuid,
    worker text,
    claim_lease_s double precision,
    lease_until timestamp with time zone,
    progress jsonb,
    deliveries integer DEFAULT 0 NOT NULL,
    lost integer DEFAULT 0 NOT NULL,
    ended_claim uuid,
    outcome text,
    output jsonb,
    error jsonb,
    answered_by text,
    answered_at timestamp with time zone,
    seen_at timestamp with time zone,
    CONSTRAINT workflow_execution_ask_check CHECK (((holder IS NULL) = (attempt = 0))),
    CONSTRAINT workflow_execution_ask_check1 CHECK (((holder IS NULL) = (opened_at IS NULL))),
    CONSTRAINT workflow_execution_ask_check10 CHECK ((((outcome IS NOT NULL) = (answered_at IS NOT NULL)) AND ((outcome IS NOT NULL) = (answered_by IS NOT NULL)))),
    CONSTRAINT workflow_execution_ask_check11 CHECK (((status <> ALL (ARRAY['OPEN'::text, 'CLAIMED'::text, 'EXPIRED'::text])) OR (outcome IS NULL))),
    CONSTRAINT workflow_execution_ask_check12 CHECK (((status <> ALL (ARRAY['ANSWERED'::text, 'TAKEN'::text])) OR (outcome IS NOT NULL))),
    CONSTRAINT workflow_execution_ask_check13 CHECK (((NOT (outcome IS DISTINCT FROM 'FAILED'::text)) = (error IS NOT NULL))),
    CONSTRAINT workflow_execution_ask_check14 CHECK (((status <> ALL (ARRAY['OPEN'::text, 'CLAIMED'::text, 'ANSWERED'::text])) OR (seen_at IS NULL))),
    CONSTRAINT workflow_execution_ask_check15 CHECK (((status <> 'TAKEN'::text) OR (seen_at IS NOT NULL))),
    CONSTRAINT workflow_execution_ask_check16 CHECK (((NOT look) OR (status = 'OPEN'::text))),
    CONSTRAINT workflow_execution_ask_check2 CHECK (((holder IS NOT NULL) OR ((kind = 'WAIT'::text) AND (status = ANY (ARRAY['ANSWERED'::text, 'CLOSED'::text]))))),
    CONSTRAINT workflow_execution_ask_check3 CHECK (((attempt = 0) OR ((kind = 'TASK'::text) = (queue IS NOT NULL)))),
    CONSTRAINT workflow_execution_ask_check4 CHECK (((attempt = 0) OR ((kind = 'TASK'::text) = (lease_s IS NOT NULL)))),
    CONSTRAINT workflow_execution_ask_check5 CHECK ((((event_type IS NULL) = (events_from IS NULL)) AND ((event_type IS NULL) OR (kind = 'WAIT'::text)))),
    CONSTRAINT workflow_execution_ask_check6 CHECK (((status <> 'CLAIMED'::text) OR (kind = 'TASK'::text))),
    CONSTRAINT workflow_execution_ask_check7 CHECK (
CASE status
    WHEN 'CLAIMED'::text THEN ((claim_id IS NOT NULL) AND (lease_until IS NOT NULL))
    ELSE (lease_until IS NULL)
END),
    CONSTRAINT workflow_execution_ask_check8 CHECK (((status <> 'OPEN'::text) OR (claim_id IS NULL))),
    CONSTRAINT workflow_execution_ask_check9 CHECK (((claim_id IS NULL) = (worker IS NULL))),
    CONSTRAINT workflow_execution_ask_kind_check CHECK ((kind = ANY (ARRAY['WAIT'::text, 'TASK'::text]))),
    CONSTRAINT workflow_execution_ask_outcome_check CHECK ((outcome = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text]))),
    CONSTRAINT workflow_execution_ask_status_check CHECK ((status = ANY (ARRAY['OPEN'::text, 'CLAIMED'::text, 'ANSWERED'::text, 'TAKEN'::text, 'EXPIRED'::text, 'CLOSED'::text])))
)
WITH (fillfactor='70');

CREATE FUNCTION forebay_r1.note_wait(p_ask forebay.workflow_execution_ask) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO forebay.workflow_execution_candidate (workspace_id, execution_id, node, iteration, after_at, after_sequence)
    VALUES (p_ask.workspace_id, p_ask.execution_id, p_ask.node, p_ask.iteration, p_ask.events_from, 0);
    PERFORM forebay.notify_change();
END $$;

CREATE FUNCTION forebay_r1.older_processes(p_release integer, p_dead_after_s double precision) RETURNS text
    LANGUAGE sql
    AS $$
    SELECT string_agg(format('%s (pid %s, release %s)', older.host, older.pid, older.release), ', ' ORDER BY older.started_at)
      FROM forebay.process older
     WHERE older.release < p_release AND older.ended_at IS NULL
       AND older.seen_at > clock_timestamp() - make_interval(secs => p_dead_after_s)
$$;

CREATE FUNCTION forebay_r1.open_wait(p_holder uuid, p_owner uuid, p_epoch bigint, p_execution uuid, p_node text, p_iteration integer, p_workspace uuid, p_attempt integer, p_kind text, p_event text, p_match text, p_queue text, p_lease_s double precision, p_input jsonb, p_expires_s double precision) RETURNS TABLE(held boolean, status text, attempt integer, expires_in_s double precision, outcome text, output jsonb, error jsonb, answered_by text, answered_at timestamp with time zone)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    a forebay.workflow_execution_ask;
    opened boolean := false;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution e
     WHERE e.id = p_holder AND e.owner = p_owner AND e.owner_epoch = p_epoch AND e.status = 'RUNNING' FOR UPDATE;
    IF FOUND AND p_execution <> p_holder THEN
        PERFORM 1 FROM forebay.workflow_execution e
         WHERE e.id = p_execution AND e.root = p_holder AND e.status = 'RUNNING' FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::text, 0, NULL::float8, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text, NULL::timestamptz;
        RETURN;
    END IF;
    INSERT INTO forebay.workflow_execution_ask (execution_id, node, iteration, id, workspace_id, holder, kind, attempt, status, event_type,
        match, events_from, look, queue, lease_s, input, opened_at, expires_at)
    SELECT p_execution, p_node, p_iteration, forebay.new_id(), p_workspace, p_holder, p_kind, p_attempt, 'OPEN', p_event,
           p_match, CASE WHEN p_event IS NOT NULL THEN e.created_at END, p_event IS NOT NULL, p_queue, p_lease_s, p_input,
           clock_timestamp(), clock_timestamp() + make_interval(secs => p_expires_s)
      FROM forebay.workflow_execution e WHERE e.id = p_execution
    ON CONFLICT DO NOTHING;
    opened := FOUND;
    SELECT * INTO a FROM forebay.workflow_execution_ask a
     WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration FOR UPDATE;
    IF a.attempt = 0 AND a.status = 'ANSWERED' THEN
        UPDATE forebay.workflow_execution_ask a
           SET status = 'TAKEN', seen_at = clock_timestamp(), holder = p_holder, attempt = p_attempt, input = p_input, opened_at = clock_timestamp()
         WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration AND a.status = 'ANSWERED'
        RETURNING * INTO a;
    ELSIF a.attempt < p_attempt AND a.status <> 'CLOSED' THEN
        opened := true;
        UPDATE forebay.workflow_execution_ask a
           SET status = 'OPEN', holder = p_holder, attempt = p_attempt, event_type = p_event, match = p_match,
               events_from = CASE WHEN p_event IS NOT NULL THEN (SELECT e.created_at FROM forebay.workflow_execution e WHERE e.id = p_execution) END,
               look = p_event IS NOT NULL, look_xid = NULL, queue = p_queue, lease_s = p_lease_s, input = p_input,
               opened_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => p_expires_s),
               ended_claim = CASE WHEN a.outcome IS NOT NULL THEN a.claim_id END, claim_id = NULL, worker = NULL, claim_lease_s = NULL, lease_until = NULL,
               progress = NULL, deliveries = 0, lost = 0, outcome = NULL, output = NULL, error = NULL, answered_by = NULL,
               answered_at = NULL, seen_at = NULL
         WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration AND a.attempt < p_attempt
           AND a.status IN ('OPEN', 'CLAIMED', 'ANSWERED', 'TAKEN', 'EXPIRED')
        RETURNING * INTO a;
    ELSIF a.attempt = p_attempt AND a.status IN ('OPEN', 'CLAIMED') AND a.expires_at <= clock_timestamp() THEN
        UPDATE forebay.workflow_execution_ask a SET status = 'EXPIRED', lease_until = NULL, look = false, seen_at = clock_timestamp()
         WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration AND a.status IN ('OPEN', 'CLAIMED')
        RETURNING * INTO a;
    ELSIF a.attempt = p_attempt AND a.status IN ('ANSWERED', 'EXPIRED') AND a.seen_at IS NULL THEN
        UPDATE forebay.workflow_execution_ask a
           SET status = CASE a.status WHEN 'ANSWERED' THEN 'TAKEN' ELSE a.status END, seen_at = clock_timestamp()
         WHERE a.execution_id = p_execution AND a.node = p_node AND a.iteration = p_iteration AND a.status IN ('ANSWERED', 'EXPIRED')
        RETURNING * INTO a;
    END IF;
    IF opened AND a.event_type IS NOT NULL THEN
        PERFORM forebay_r1.note_wait(a);
    ELSIF opened AND a.kind = 'TASK' THEN
        PERFORM forebay.notify_change();
    END IF;
    RETURN QUERY SELECT true, a.status, a.attempt, extract(epoch FROM a.expires_at - clock_timestamp())::float8, a.outcome, a.output,
                        a.error, a.answered_by, a.answered_at;
END $$;

CREATE FUNCTION forebay_r1.pending_jobs_of_types(p_workspace uuid, p_types text[], p_limit integer) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
BEGIN
    IF p_workspace IS NULL THEN
        RETURN QUERY
        SELECT pending.id FROM (SELECT DISTINCT asked.type FROM forebay_r1.pending_types(NULL, p_types, 1000) AS asked(type)) asked
         CROSS JOIN LATERAL (SELECT j.id, j.pending_since FROM forebay.workflow_queue_job j
                              WHERE j.pending_since IS NOT NULL
                                AND j.event_type >= asked.type COLLATE "C" AND j.event_type <= asked.type COLLATE "C"
                              ORDER BY j.event_type, j.pending_since, j.id LIMIT p_limit) pending
         ORDER BY pending.pending_since, pending.id LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT pending.id FROM (SELECT DISTINCT asked.type FROM forebay_r1.pending_types(p_workspace, p_types, 1000) AS asked(type)) asked
         CROSS JOIN LATERAL (SELECT j.id, j.pending_since FROM forebay.workflow_queue_job j
                              WHERE j.pending_since IS NOT NULL AND j.workspace_id = p_workspace
                                AND j.event_type >= asked.type COLLATE "C" AND j.event_type <= asked.type COLLATE "C"
                              ORDER BY j.event_type, j.pending_since, j.id LIMIT p_limit) pending
         ORDER BY pending.pending_since, pending.id LIMIT p_limit;
    END IF;
END $$;

CREATE FUNCTION forebay_r1.pending_types(p_workspace uuid, p_types text[], p_most integer) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    v_asked text;
    v_prefix text;
    v_type text COLLATE "C";
BEGIN
    FOREACH v_asked IN ARRAY p_types LOOP
        IF v_asked NOT LIKE '%.*' THEN
            RETURN NEXT v_asked;
            CONTINUE;
        END IF;
        v_prefix := left(v_asked, -1);
        v_type := v_prefix;
        FOR step IN 1..p_most LOOP
            IF p_workspace IS NULL THEN
                v_type := (SELECT j.event_type FROM forebay.workflow_queue_job j
                            WHERE j.pending_since IS NOT NULL AND j.event_type > v_type ORDER BY j.event_type LIMIT 1);
            ELSE
                v_type := (SELECT j.event_type FROM forebay.workflow_queue_job j
                            WHERE j.pending_since IS NOT NULL AND j.workspace_id = p_workspace AND j.event_type > v_type
                            ORDER BY j.event_type LIMIT 1);
            END IF;
            EXIT WHEN v_type IS NULL OR NOT starts_with(v_type, v_prefix);
            RETURN NEXT v_type;
        END LOOP;
    END LOOP;
END $$;

CREATE FUNCTION forebay_r1.put_aside_unbound_jobs(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    done int;
BEGIN
    WITH gone AS MATERIALIZED (
        SELECT w.id FROM forebay_r1.bindings_of_pending_jobs() AS w(id) WHERE NOT EXISTS (SELECT 1 FROM forebay.event_binding b WHERE b.id = w.id)),
    t AS MATERIALIZED (
        SELECT j.id FROM gone
         CROSS JOIN LATERAL (SELECT j.id FROM forebay.workflow_queue_job j
                              WHERE j.binding_id = gone.id AND j.pending_since IS NOT NULL AND j.due_at IS NOT NULL
                              LIMIT p_limit FOR UPDATE SKIP LOCKED) j
         LIMIT p_limit)
    UPDATE forebay.workflow_queue_job j SET due_at = NULL WHERE j.id = ANY (ARRAY(SELECT t.id FROM t)) AND j.due_at IS NOT NULL;
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END $$;

CREATE FUNCTION forebay_r1.raise_protocol(p_protocol integer, p_release integer, p_dead_after_s double precision) RETURNS text
    LANGUAGE plpgsql
    SET lock_timeout TO '100ms'
    AS $$
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
            RAISE lock_not_available USING MESSAGE = 'the locks of all shards were not to be had in time';
        END IF;
    END LOOP;
    -- Again, because one may have started meanwhile. One that starts after this is refused by its own claims.
    v_older := forebay_r1.older_processes(p_release, p_dead_after_s);
    IF v_older IS NULL AND (SELECT number FROM forebay.protocol) < p_protocol THEN
        PERFORM forebay_r1.change_rows_for_protocol(p_protocol);
        UPDATE forebay.protocol SET number = p_protocol WHERE number < p_protocol;
    END IF;
    RETURN v_older;
END $$;

CREATE FUNCTION forebay_r1.rebuild_jobs() RETURNS TABLE(id uuid, how text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    found record;
BEGIN
    LOCK TABLE public.workflow_queue_projection IN SHARE ROW EXCLUSIVE MODE;
    PERFORM set_config('forebay.projection', 'rebuild', true);
    SELECT coalesce(array_agg(d.id), '{}') AS ids, coalesce(array_agg(d.how), '{}') AS hows INTO found FROM forebay_r1.differing_jobs() d;
    DELETE FROM public.workflow_queue_projection p WHERE p.id = ANY (found.ids);
    INSERT INTO public.workflow_queue_projection SELECT f.* FROM forebay_r1.folded_jobs() f WHERE f.id = ANY (found.ids);
    DELETE FROM forebay.workflow_queue_job j WHERE j.id = ANY (found.ids) AND NOT EXISTS (SELECT 1 FROM public.workflow_queue_projection p WHERE p.id = j.id);
    -- What is ours beside a row that was lost with it: its facts, and a claim that is anybody's.
    INSERT INTO forebay.workflow_queue_job (id, event_type, event_id, event_workspace_id, workspace_id, version, pending_since, held, lease_until, retry_from)
    SELECT p.id, p.event_type, p.event_id, e.workspace_id, z.workspace_id, z.stream_version, CASE WHEN p.status = 'pending' THEN p.updated_at END,
           CASE WHEN p.status = 'processing' THEN 'sql' END,
           CASE WHEN p.status = 'processing' THEN greatest(p.claimed_at, p.updated_at) + interval '900 seconds' END,
           CASE WHEN p.status = 'failed' AND p.retry_count < forebay.max_job_failures() THEN p.failed_at END
      FROM public.workflow_queue_projection p
     CROSS JOIN LATERAL (SELECT f.workspace_id, f.stream_version, f.event_metadata FROM public.domain_events f
                          WHERE f.stream_id = p.id AND f.stream_type = 'workflow_queue' ORDER BY f.stream_version DESC LIMIT 1) z
      LEFT JOIN LATERAL forebay.event_of(p.event_id, coalesce((z.event_metadata ->> 'event_workspace_id')::uuid, z.workspace_id),
           p.stream_id, p.stream_type, p.event_type) e ON true
     WHERE p.id = ANY (found.ids)
    ON CONFLICT (id) DO NOTHING;
    PERFORM set_config('forebay.projection', '', true);
    RETURN QUERY SELECT * FROM unnest(found.ids, found.hows);
END $$;

CREATE FUNCTION forebay_r1.reconcile_jobs(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    t record;
    done int := 0;
BEGIN
    FOR t IN SELECT j.id, j.claim_id, e.id AS execution, q.status AS ticket FROM forebay.workflow_queue_job j
               JOIN public.workflow_queue_projection p ON p.id = j.id AND p.status = 'processing'
               LEFT JOIN forebay.workflow_execution e ON e.id = j.claim_id
               -- LIMIT 1: always a primary-key probe, never a scan.
               LEFT JOIN LATERAL (SELECT q.status FROM forebay.execution_queue q WHERE q.id = j.claim_id LIMIT 1) q ON e.id IS NULL
              WHERE j.held = 'ours' AND (e.completed_at IS NOT NULL OR e.id IS NULL AND coalesce(q.status IN ('PENDING', 'FAILED'), true))
              ORDER BY j.id LIMIT p_limit FOR UPDATE OF p SKIP LOCKED
    LOOP
        IF t.execution IS NOT NULL THEN
            done := done + forebay_r1.end_jobs_of(ARRAY[t.execution]);
        ELSIF t.ticket = 'FAILED' THEN
            done := done + forebay_r1.fail_jobs_of_missing(ARRAY[t.claim_id]);
        ELSE
            PERFORM set_config('forebay.claim', t.claim_id::text, true);
            UPDATE public.workflow_queue_projection p SET status = 'pending' WHERE p.id = t.id AND p.status = 'processing';
            PERFORM set_config('forebay.claim', '', true);
            done := done + 1;
        END IF;
    END LOOP;
    RETURN done;
END $$;

CREATE FUNCTION forebay_r1.record(p_process uuid, r_ids uuid[], r_holders uuid[], r_epochs bigint[], r_park_ms bigint[], f_runs integer[], f_nodes text[], f_iterations integer[], f_statuses text[], f_attempts integer[], f_next_in_ms bigint[], f_labels text[], f_inputs jsonb[], f_outputs jsonb[], f_errors jsonb[], f_once boolean[], e_runs integer[], e_settled integer[], e_outcomes text[], e_outputs jsonb[], e_errors jsonb[], p_actor text) RETURNS TABLE(run bigint, held boolean, ended boolean, workspace uuid, freed boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $_$
#variable_conflict use_column
DECLARE
    -- By the run's place: what it had settled so far, or -1 if it is not held; where its row is; and whose it is.
    v_seqs bigint[];
    v_rows tid[];
    v_workspaces uuid[];
    v_ended record;
BEGIN
    -- The rows are changed below where they were found here, locked: a join by id may be planned the
    -- wrong way round while statistics say that the table is empty, and then reads all of it.
    SELECT array_agg(coalesce(holder.last_seq, -1) ORDER BY run.ord), array_agg(coalesce(holder.ctid, '(0,0)') ORDER BY run.ord),
           array_agg(coalesce(holder.workspace_id, '00000000-0000-0000-0000-000000000000') ORDER BY run.ord)
      INTO v_seqs, v_rows, v_workspaces
      FROM (SELECT * FROM unnest(r_holders, r_epochs) WITH ORDINALITY AS run(holder_id, epoch, ord) ORDER BY run.holder_id) run
      LEFT JOIN LATERAL (
           SELECT execution.ctid, execution.last_seq, execution.workspace_id FROM forebay.workflow_execution execution
            WHERE execution.id = run.holder_id AND execution.owner = p_process AND execution.owner_epoch = run.epoch
              AND execution.status = 'RUNNING'
              FOR UPDATE) holder ON true;
    IF r_ids <> r_holders THEN
        SELECT array_agg(CASE WHEN run.id = run.holder_id THEN run.seq ELSE coalesce(child.last_seq, -1) END ORDER BY run.ord),
               array_agg(CASE WHEN run.id = run.holder_id THEN run.place ELSE coalesce(child.ctid, '(0,0)') END ORDER BY run.ord)
          INTO v_seqs, v_rows
          FROM (SELECT * FROM unnest(r_ids, r_holders, v_seqs, v_rows) WITH ORDINALITY AS run(id, holder_id, seq, place, ord)
                 ORDER BY run.id) run
          LEFT JOIN LATERAL (
               SELECT execution.ctid, execution.last_seq FROM forebay.workflow_execution execution
                WHERE execution.id = run.id AND run.id <> run.holder_id AND run.seq >= 0 AND execution.root = run.holder_id
                  AND execution.status = 'RUNNING'
                  FOR UPDATE) child ON true;
    END IF;

    WITH facts AS MATERIALIZED (
        SELECT fact.*, r_ids[fact.run] AS execution_id, v_workspaces[fact.run] AS workspace_id,
               CASE WHEN fact.status = 'RETRYING' THEN jsonb_build_array(jsonb_build_object(
                    'attempt', fact.attempt - 1, 'at', clock_timestamp(), 'error', fact.error)) END AS failed_attempt,
               CASE WHEN fact.settles
                    THEN v_seqs[fact.run] + row_number() OVER (PARTITION BY fact.run, fact.settles ORDER BY fact.ord) END AS seq
          FROM (SELECT brought.*, brought.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN') AS settles
                  FROM unnest(f_runs, f_nodes, f_iterations, f_statuses, f_attempts, f_next_in_ms, f_labels, f_inputs,
                              f_outputs, f_errors, f_once)
                       WITH ORDINALITY AS brought(run, node, iteration, status, attempt, next_in_ms, label, input, output, error, once, ord)
                 WHERE v_seqs[brought.run] >= 0) fact),
    stored AS (
        INSERT INTO forebay.workflow_execution_node AS known (execution_id, node, iteration, workspace_id, status, attempt, seq, label,
            next_at, input, output, error, earlier, started_at, completed_at, duration_ms, once)
        SELECT fact.execution_id, fact.node, fact.iteration, fact.workspace_id, fact.status, fact.attempt, fact.seq, fact.label,
               clock_timestamp() + make_interval(secs => fact.next_in_ms / 1000.0), fact.input, fact.output, fact.error,
               fact.failed_attempt,
               CASE WHEN fact.status IN ('SKIPPED', 'CANCELED') THEN NULL ELSE clock_timestamp() END,
               CASE WHEN fact.seq IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN fact.seq IS NOT NULL THEN 0 END, fact.once
          FROM facts fact
        ON CONFLICT (execution_id, node, iteration) DO UPDATE
           SET status = excluded.status, attempt = excluded.attempt, seq = excluded.seq, label = excluded.label,
               next_at = excluded.next_at, input = coalesce(excluded.input, known.input),
               -- What a loop's items came to is there already: functions/gather.sql.
               output = coalesce(excluded.output, CASE WHEN excluded.status = 'COMPLETED' THEN known.output END),
               error = excluded.error, completed_at = excluded.completed_at, once = known.once OR excluded.once,
               -- A loop that a rerun goes on with has a row before it begins.
               started_at = coalesce(known.started_at, excluded.started_at),
               earlier = CASE WHEN excluded.status = 'RETRYING' AND excluded.attempt > known.attempt
                    THEN jsonb_path_query_array(coalesce(known.earlier, '[]') || excluded.earlier, '$[last - 9 to last]')
                    ELSE coalesce(known.earlier, excluded.earlier) END,
               duration_ms = CASE WHEN excluded.completed_at IS NOT NULL
                    THEN (extract(epoch FROM clock_timestamp() - known.started_at) * 1000)::bigint END
         WHERE known.status IN ('PENDING', 'RUNNING', 'RETRYING')
        RETURNING known.execution_id, known.workspace_id, known.seq),
    -- Whose nodes have moved; an end says so itself.
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces)
        SELECT 'nodes', 'UPDATE', array_agg(moved.execution_id), array_agg(moved.workspace_id)
          FROM (SELECT DISTINCT stored.execution_id, stored.workspace_id FROM stored
                 WHERE cardinality(e_runs) < cardinality(r_ids)
                   AND NOT stored.execution_id = ANY (ARRAY(SELECT r_ids[ending.run] FROM unnest(e_runs) AS ending(run)))) moved
        HAVING count(*) > 0)
    -- Only what was stored counts: a repeated or late fact is no progress. A run that ends is written
    -- once, below: its facts cannot be repeated, because it is over then.
    UPDATE forebay.workflow_execution execution SET last_seq = progress.seq
      FROM (SELECT run.place, max(stored.seq) AS seq
              FROM stored JOIN unnest(r_ids, v_rows) WITH ORDINALITY AS run(id, place, ord)
                ON run.id = stored.execution_id AND v_seqs[run.ord] >= 0 AND NOT run.ord = ANY (e_runs)
             WHERE stored.seq IS NOT NULL AND cardinality(e_runs) < cardinality(r_ids) GROUP BY run.place) progress
     WHERE execution.ctid = progress.place;

    -- Parking keeps an earlier wake_at: a signal or a cancel that came meanwhile is not lost. The
    -- deadline wakes it too, to end itself in time.
    IF EXISTS (SELECT 1 FROM unnest(r_park_ms) AS run(park_ms) WHERE run.park_ms IS NOT NULL) THEN
        UPDATE forebay.workflow_execution execution
           SET owner = NULL, owner_epoch = execution.owner_epoch + 1,
               wake_at = least(execution.wake_at, execution.deadline_at, clock_timestamp() + make_interval(secs => (
                    SELECT min(run.park_ms) FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS run(id, park_ms, ord)
                     WHERE run.id = execution.id AND v_seqs[run.ord] >= 0) / 1000.0))
         WHERE execution.id = ANY (ARRAY(SELECT run.id FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS run(id, park_ms, ord)
                                          WHERE run.park_ms IS NOT NULL AND v_seqs[run.ord] >= 0));
    END IF;

    WITH ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = ending.outcome, output = ending.output, error = ending.error, completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint,
               last_seq = execution.last_seq + ending.settled, owner = NULL, owner_epoch = execution.owner_epoch + 1, wake_at = NULL
          FROM unnest(e_runs, e_settled, e_outcomes, e_outputs, e_errors) AS ending(run, settled, outcome, output, error)
         WHERE execution.ctid = v_rows[ending.run] AND v_seqs[ending.run] >= 0 AND execution.status = 'RUNNING'
        RETURNING execution.id, execution.workspace_id, execution.status, execution.error, execution.trigger,
                  execution.parent IS NOT NULL OR execution.descendants > 0 AS of_tree),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status FROM ended GROUP BY ended.status)
    SELECT array_agg(ended.id) AS ids, array_agg(ended.status) AS outcomes, array_agg(ended.error) AS errors,
           array_agg(ended.id) FILTER (WHERE ended.trigger ->> 'type' = 'event') AS of_events,
           array_agg(ended.id) FILTER (WHERE ended.of_tree) AS of_trees
      INTO v_ended FROM ended;
    -- What its descendants settled is a root's progress.
    IF r_ids <> r_holders THEN
        UPDATE forebay.workflow_execution root
           SET tree_seq = root.tree_seq + (SELECT count(*) FROM unnest(f_runs, f_statuses) AS fact(run, status)
                WHERE r_holders[fact.run] = root.id AND r_ids[fact.run] <> root.id AND v_seqs[fact.run] >= 0
                  AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN'))
         WHERE root.id = ANY (ARRAY(SELECT DISTINCT r_holders[fact.run] FROM unnest(f_runs, f_statuses) AS fact(run, status)
                WHERE r_ids[fact.run] <> r_holders[fact.run] AND v_seqs[fact.run] >= 0
                  AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')));
    END IF;
    IF v_ended.ids IS NULL THEN
        RETURN QUERY SELECT run.ord, v_seqs[run.ord] >= 0, false, NULL::uuid, false
          FROM unnest(r_ids) WITH ORDINALITY AS run(id, ord);
    ELSE
        IF EXISTS (SELECT 1 FROM forebay.webhook live WHERE live.workspace_id = ANY (v_workspaces) AND live.disabled_at IS NULL) THEN
            PERFORM forebay_r1.add_deliveries(v_ended.ids);
        END IF;
        RETURN QUERY
        SELECT run.ord, v_seqs[run.ord] >= 0, followed.execution IS NOT NULL, v_workspaces[run.ord], coalesce(followed.freed, false)
          FROM unnest(r_ids) WITH ORDINALITY AS run(id, ord)
          LEFT JOIN forebay_r1.after_end(v_ended.ids, v_ended.outcomes, v_ended.errors, v_ended.of_events, v_ended.of_trees, false, p_actor)
                 AS followed ON followed.execution = run.id AND v_seqs[run.ord] >= 0;
    END IF;
END $_$;

CREATE FUNCTION forebay_r1.recover_jobs(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    t record;
    done int := 0;
BEGIN
    FOR t IN SELECT p.id, j.claim_id FROM forebay.workflow_queue_job j JOIN public.workflow_queue_projection p ON p.id = j.id
              WHERE j.lease_until < clock_timestamp() AND p.status = 'processing'
              ORDER BY j.lease_until LIMIT p_limit FOR UPDATE OF p, j SKIP LOCKED
    LOOP
        PERFORM set_config('forebay.claim', coalesce(t.claim_id::text, ''), true);
        UPDATE public.workflow_queue_projection p SET status = 'pending' WHERE p.id = t.id AND p.status = 'processing';
        done := done + 1;
    END LOOP;
    PERFORM set_config('forebay.claim', '', true);
    RETURN done;
END $$;

CREATE FUNCTION forebay_r1.report_node(p_execution uuid, p_owner uuid, p_epoch bigint, p_node text, p_iteration integer, p_fence integer, p_status text, p_attempt integer, p_next_in_ms bigint, p_label text, p_output jsonb, p_error jsonb, p_actor text) RETURNS TABLE(held boolean, current boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM forebay.workflow_execution e
     WHERE e.id = p_execution AND e.owner = p_owner AND e.owner_epoch = p_epoch AND e.status = 'RUNNING' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, false;
        RETURN;
    END IF;
    PERFORM 1 FROM forebay.workflow_execution_node n
     WHERE n.execution_id = p_execution AND n.node = p_node AND n.iteration = p_iteration AND n.fence = p_fence
       AND n.status IN ('PENDING', 'RUNNING', 'RETRYING');
    IF NOT FOUND THEN
        RETURN QUERY SELECT true, false;
        RETURN;
    END IF;
    PERFORM 1 FROM forebay_r1.record(
        p_owner, ARRAY[p_execution], ARRAY[p_execution], ARRAY[p_epoch], ARRAY[NULL::bigint],
        ARRAY[1], ARRAY[p_node], ARRAY[p_iteration], ARRAY[p_status], ARRAY[p_attempt], ARRAY[p_next_in_ms],
        ARRAY[p_label], ARRAY[NULL::jsonb], ARRAY[p_output], ARRAY[p_error], ARRAY[false],
        '{}'::int[], '{}'::int[], '{}'::text[], '{}'::jsonb[], '{}'::jsonb[], p_actor);
    RETURN QUERY SELECT true, true;
END $$;

CREATE FUNCTION forebay_r1.rerun(p_id uuid, p_workspace uuid, p_definition uuid, p_input jsonb, p_priority smallint, p_key text, p_idempotency text, p_fingerprint bytea, p_trigger jsonb, p_trace text, p_version uuid, p_of uuid, p_kept text[], p_actor text, p_semantics integer, p_step_ms bigint, p_max_backlog integer, p_done text[], p_loops text[]) RETURNS TABLE(ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    r record;
BEGIN
    SELECT * INTO r FROM forebay.enqueue_many(
        ARRAY[p_id], ARRAY[p_workspace], ARRAY[p_definition], ARRAY[p_input], ARRAY[p_priority], ARRAY[NULL::timestamptz],
        ARRAY[p_key], ARRAY[p_idempotency], ARRAY[p_fingerprint], ARRAY[p_trigger], ARRAY[p_trace], ARRAY[p_version],
        ARRAY[p_of], p_actor, p_semantics, p_step_ms, p_max_backlog, true);
    IF r.outcome = 'accepted' THEN
        WITH g AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, input)
            SELECT p_id, o.node, 0, o.workspace_id, 'PENDING', o.input
              FROM forebay.workflow_execution_node o
             WHERE o.execution_id = p_of AND o.workspace_id = p_workspace AND o.node = ANY (p_loops) AND o.iteration = 0
               AND o.input IS NOT NULL
            RETURNING node, coalesce(input ->> 'on_item_error', 'fail') <> 'fail' AS goes_on),
        n AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, attempt, seq, label,
                input, output, error, earlier, started_at, completed_at, duration_ms, kept_from)
            SELECT p_id, o.node, o.iteration, o.workspace_id, CASE WHEN o.node = ANY (p_done) AND o.status = 'UNKNOWN' THEN 'COMPLETED' ELSE o.status END, o.attempt,
                   row_number() OVER (ORDER BY o.seq, o.node, o.iteration), o.label, o.input, o.output,
                   CASE WHEN o.node = ANY (p_done) AND o.status = 'UNKNOWN' THEN NULL ELSE o.error END, o.earlier,
                   o.started_at, o.completed_at, o.duration_ms, coalesce(o.kept_from, o.execution_id)
              FROM forebay.workflow_execution_node o
              LEFT JOIN g ON g.node = o.node
             WHERE o.execution_id = p_of AND o.workspace_id = p_workspace AND o.seq IS NOT NULL
               AND (o.node = ANY (p_kept) OR (g.node IS NOT NULL AND o.iteration > 0 AND (
                    o.status IN ('COMPLETED', 'SKIPPED') OR (o.status = 'FAILED' AND g.goes_on)
                    OR (o.status = 'UNKNOWN' AND o.node = ANY (p_done)))))
            RETURNING seq)
        UPDATE forebay.workflow_execution e SET last_seq = (SELECT max(n.seq) FROM n)
         WHERE e.id = p_id AND e.status = 'PENDING' AND EXISTS (SELECT 1 FROM n);
    END IF;
    RETURN QUERY SELECT r.ord, r.outcome, r.execution, r.workspace, r.stage;
END $$;

CREATE FUNCTION forebay_r1.retire_executions(p_age_s double precision, p_keys_kept_s double precision, p_from uuid, p_scan integer, p_rows integer) RETURNS TABLE(next uuid, retired bigint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
DECLARE
    v_old timestamptz := clock_timestamp() - make_interval(secs => p_age_s);
    v_before uuid := (lpad(to_hex((extract(epoch FROM v_old) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid;
    v_ids uuid[] := ARRAY(SELECT r.id FROM forebay.retired_execution r ORDER BY r.id LIMIT 100);
    v_roots uuid[];
    v_scanned uuid[];
    v_left int;
BEGIN
    IF v_ids <> '{}' THEN
        v_left := forebay_r1.retire_rows(v_ids, p_rows);
        DELETE FROM forebay.retired_execution r WHERE r.id = ANY (v_ids) AND (v_left > 0 OR NOT forebay_r1.retire_remains(r.id));
        RETURN QUERY SELECT p_from, 0::bigint;
        RETURN;
    END IF;
    -- The descendants of a root are looked at too: one call looks at p_rows of them, or at one whole tree.
    v_scanned := ARRAY(
        SELECT s.id FROM (
            SELECT w.id, sum(1 + w.descendants) OVER (ORDER BY w.id) - w.descendants AS looked_at
              FROM (SELECT e.id, e.descendants FROM forebay.workflow_execution e
                     WHERE e.id > p_from AND e.id < v_before ORDER BY e.id LIMIT p_scan) w) s
         WHERE s.looked_at <= p_rows ORDER BY s.id);
    IF v_scanned = '{}' THEN
        RETURN QUERY SELECT NULL::uuid, 0::bigint;
        RETURN;
    END IF;
    v_roots := ARRAY(
        SELECT e.id FROM forebay.workflow_execution e
         WHERE e.id = ANY (v_scanned) AND e.parent IS NULL AND e.completed_at < v_old
           AND (e.idempotency_key IS NULL OR e.created_at < clock_timestamp() - make_interval(secs => p_keys_kept_s))
           AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution d WHERE d.root = e.id AND d.completed_at IS NULL)
         ORDER BY e.id FOR UPDATE SKIP LOCKED);
    v_ids := v_roots || ARRAY(
        SELECT d.id FROM forebay.workflow_execution d
         WHERE d.id = ANY (v_scanned) AND d.parent IS NOT NULL AND d.completed_at IS NOT NULL
           AND (d.root = ANY (v_roots) OR NOT EXISTS (SELECT 1 FROM forebay.workflow_execution r WHERE r.id = d.root))
         ORDER BY d.id FOR UPDATE SKIP LOCKED);
    DELETE FROM forebay.execution_queue q WHERE q.id = ANY (v_ids) AND q.status = 'FAILED';
    DELETE FROM forebay.workflow_execution e WHERE e.id = ANY (v_ids);
    IF forebay_r1.retire_rows(v_ids, p_rows) = 0 THEN
        INSERT INTO forebay.retired_execution (id) SELECT t.id FROM unnest(v_ids) AS t(id) WHERE forebay_r1.retire_remains(t.id)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT v_scanned[cardinality(v_scanned)], cardinality(v_ids)::bigint;
END $$;

CREATE FUNCTION forebay_r1.retire_jobs(p_age_s double precision, p_status text, p_from_at timestamp with time zone, p_from_id uuid, p_scan integer) RETURNS TABLE(at timestamp with time zone, id uuid, retired bigint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_old timestamptz := clock_timestamp() - make_interval(secs => p_age_s);
    v_ids uuid[];
    v_last record;
    v_retired bigint;
BEGIN
    WITH scanned AS MATERIALIZED (
        SELECT p.id, p.created_at, coalesce(p.completed_at, p.failed_at) < v_old AND j.retry_from IS NULL AS due
          FROM public.workflow_queue_projection p JOIN forebay.workflow_queue_job j ON j.id = p.id
         WHERE p.status = p_status AND p.created_at < v_old AND p.created_at >= p_from_at
           AND (p.created_at, p.id) > (p_from_at, p_from_id)
         ORDER BY p.created_at, p.id LIMIT p_scan)
    SELECT (array_agg(s.created_at ORDER BY s.created_at DESC, s.id DESC))[1] AS at,
           (array_agg(s.id ORDER BY s.created_at DESC, s.id DESC))[1] AS id,
           coalesce(array_agg(s.id) FILTER (WHERE s.due), '{}') AS due
      INTO v_last FROM scanned s;
    IF v_last.id IS NULL THEN
        RETURN;
    END IF;
    v_ids := ARRAY(SELECT p.id FROM public.workflow_queue_projection p WHERE p.id = ANY (v_last.due) FOR UPDATE SKIP LOCKED);
    PERFORM set_config('forebay.projection', 'retention', true);
    DELETE FROM public.workflow_queue_projection p WHERE p.id = ANY (v_ids) AND p.status = p_status;
    GET DIAGNOSTICS v_retired = ROW_COUNT;
    PERFORM set_config('forebay.projection', '', true);
    RETURN QUERY SELECT v_last.at, v_last.id, v_retired;
END $$;

CREATE FUNCTION forebay_r1.retire_remains(p_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    AS $$
    SELECT EXISTS (SELECT 1 FROM forebay.workflow_execution_node n WHERE n.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_ask a WHERE a.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_token t WHERE t.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_candidate c WHERE c.execution_id = p_id)
$$;

CREATE FUNCTION forebay_r1.retire_rows(p_ids uuid[], p_rows integer) RETURNS integer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    v_left int := p_rows;
    v_gone int;
BEGIN
    DELETE FROM forebay.workflow_execution_node n
     WHERE n.ctid = ANY (ARRAY(SELECT m.ctid FROM forebay.workflow_execution_node m WHERE m.execution_id = ANY (p_ids) LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_ask a
     WHERE a.ctid = ANY (ARRAY(SELECT m.ctid FROM forebay.workflow_execution_ask m WHERE m.execution_id = ANY (p_ids) LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_token t
     WHERE t.ctid = ANY (ARRAY(SELECT m.ctid FROM forebay.workflow_execution_token m WHERE m.execution_id = ANY (p_ids) LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_candidate c
     WHERE c.ctid = ANY (ARRAY(SELECT m.ctid FROM forebay.workflow_execution_candidate m WHERE m.execution_id = ANY (p_ids) LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_left - v_gone;
END $$;

CREATE FUNCTION forebay_r1.retry_jobs(p_waits double precision[], p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    done int;
BEGIN
    WITH t AS MATERIALIZED (
        SELECT p.id FROM forebay.workflow_queue_job j JOIN public.workflow_queue_projection p ON p.id = j.id
         WHERE j.retry_from <= now() AND p.status = 'failed' AND p.retry_count < forebay.max_job_failures()
           AND j.retry_from + make_interval(secs => p_waits[p.retry_count]) <= now()
         ORDER BY j.retry_from LIMIT p_limit FOR UPDATE OF p SKIP LOCKED)
    UPDATE public.workflow_queue_projection p SET status = 'pending' FROM t WHERE p.id = t.id AND p.status = 'failed';
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END $$;

CREATE FUNCTION forebay_r1.sample_shard(p_shard smallint, p_most integer, p_workspaces integer) RETURNS TABLE(ready bigint, delayed bigint, for_key bigint, for_definition bigint, slots bigint, slots_limit bigint, oldest_for_turn_s double precision, oldest_for_slot_s double precision)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE ready_hop (ws, since, n) AS (
        (SELECT q.workspace_id, q.created_at, 1 FROM forebay.execution_queue q
          WHERE q.shard = p_shard AND q.stage = forebay.stage_ready() ORDER BY q.workspace_id, q.rank, q.id LIMIT 1)
        UNION ALL
        SELECT x.workspace_id, x.created_at, h.n + 1 FROM ready_hop h CROSS JOIN LATERAL (
            SELECT q.workspace_id, q.created_at FROM forebay.execution_queue q
             WHERE q.shard = p_shard AND q.stage = forebay.stage_ready() AND q.workspace_id > h.ws
             ORDER BY q.workspace_id, q.rank, q.id LIMIT 1) x
         WHERE h.n < p_workspaces),
    slot_hop (ws, n) AS (
        (SELECT q.workspace_id, 1 FROM forebay.execution_queue q
          WHERE q.shard = p_shard AND q.stage = forebay.stage_slot() ORDER BY q.workspace_id LIMIT 1)
        UNION ALL
        SELECT x.workspace_id, h.n + 1 FROM slot_hop h CROSS JOIN LATERAL (
            SELECT q.workspace_id FROM forebay.execution_queue q
             WHERE q.shard = p_shard AND q.stage = forebay.stage_slot() AND q.workspace_id > h.ws
             ORDER BY q.workspace_id LIMIT 1) x
         WHERE h.n < p_workspaces),
    busy AS (SELECT h.ws FROM ready_hop h UNION SELECT h.ws FROM slot_hop h),
    w AS MATERIALIZED (
        SELECT ws.id, coalesce(ws.limit_override, tier.max_running) AS lim, ws.paused OR ws.deleted_at IS NOT NULL AS closed
          FROM busy CROSS JOIN LATERAL (SELECT * FROM forebay.workspace x WHERE x.id = busy.ws LIMIT 1) ws
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier y WHERE y.name = ws.tier LIMIT 1) tier),
    r AS MATERIALIZED (
        SELECT extract(epoch FROM clock_timestamp() - h.since)::float8 AS age,
               NOT w.closed AND (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue s
                    WHERE s.shard = p_shard AND s.workspace_id = h.ws AND s.stage = forebay.stage_slot() LIMIT w.lim) s) < w.lim AS has_slot
          FROM ready_hop h JOIN w ON w.id = h.ws)
    SELECT (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_ready() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE p_shard = 0 AND q.stage = forebay.stage_delayed() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_waits_for_key() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_waits_for_definition() LIMIT p_most) x),
           (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue q WHERE q.shard = p_shard AND q.stage = forebay.stage_slot() LIMIT p_most) x),
           (SELECT coalesce(sum(w.lim), 0)::bigint FROM w),
           (SELECT coalesce(max(r.age), 0) FROM r WHERE r.has_slot),
           (SELECT coalesce(max(r.age), 0) FROM r WHERE NOT r.has_slot);
END $$;

CREATE FUNCTION forebay_r1.start_jobs(p_ids uuid[], p_retries integer[], p_executions uuid[], p_workspaces uuid[], p_definitions uuid[], p_versions uuid[], p_inputs jsonb[], p_triggers jsonb[], p_workflow_ids text[], p_skip boolean[], p_errors text[], p_worker text, p_actor text, p_semantics integer, p_step_ms bigint, p_max_backlog integer) RETURNS TABLE(id uuid, answer text, execution uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    t record;
    taken uuid[];
    moved uuid[];
    begun uuid[];
    later uuid[] := '{}';
BEGIN
    SELECT coalesce(array_agg(p.id), '{}') INTO taken FROM (
        SELECT p.id FROM public.workflow_queue_projection p JOIN unnest(p_ids, p_retries) AS t(id, retries) ON t.id = p.id
         WHERE p.status = 'pending' AND p.retry_count = t.retries
         ORDER BY p.id FOR UPDATE OF p SKIP LOCKED) p;
    -- What was judged by a version that is published no more stays as it is.
    SELECT coalesce(array_agg(t.id), '{}') INTO moved FROM unnest(p_ids, p_definitions, p_versions) AS t(id, definition, version)
      JOIN forebay.workflow_definition d ON d.id = t.definition
     WHERE t.id = ANY (taken) AND t.version IS NOT NULL AND d.published_version IS DISTINCT FROM t.version;
    taken := ARRAY(SELECT t.id FROM unnest(taken) AS t(id) WHERE NOT t.id = ANY (moved));
    -- Only what begins has an execution.
    SELECT coalesce(array_agg(t.id), '{}') INTO begun FROM unnest(p_ids, p_skip, p_errors) AS t(id, skip, error)
     WHERE t.id = ANY (taken) AND NOT t.skip AND t.error IS NULL;

    FOR t IN
        WITH s AS MATERIALIZED (
            -- By the job's id: an event's may be another workspace's too, and a platform's workflow runs for both.
            SELECT u.*, 'event:' || p.id || '/' || u.retries AS key
              FROM unnest(p_ids, p_retries, p_executions, p_workspaces, p_definitions, p_versions, p_inputs, p_triggers, p_workflow_ids)
                   AS u(id, retries, execution, workspace, definition, version, input, trig, workflow_id)
              JOIN public.workflow_queue_projection p ON p.id = u.id WHERE u.id = ANY (begun) ORDER BY u.id),
        a AS MATERIALIZED (
            SELECT array_agg(s.id) AS ids, array_agg(s.execution) AS executions, array_agg(s.workspace) AS workspaces,
                   array_agg(s.definition) AS definitions, array_agg(s.input) AS inputs, array_agg(3::smallint) AS priorities,
                   array_agg(NULL::timestamptz) AS run_at, array_agg(NULL::text) AS none, array_agg(s.key) AS keys,
                   array_agg(sha256(convert_to(s.key, 'UTF8'))) AS prints, array_agg(s.trig) AS triggers,
                   array_agg(s.version) AS versions, array_agg(NULL::uuid) AS nobody, array_agg(s.workflow_id) AS workflow_ids
              FROM s HAVING count(*) > 0)
        SELECT a.ids[e.ord] AS id, e.outcome, e.execution, a.workflow_ids[e.ord] AS workflow_id
          FROM a CROSS JOIN LATERAL forebay.enqueue_many(a.executions, a.workspaces, a.definitions, a.inputs, a.priorities, a.run_at,
               a.none, a.keys, a.prints, a.triggers, a.none, a.versions, a.nobody, p_actor, p_semantics, p_step_ms, p_max_backlog, true) e
    LOOP
        IF t.outcome IN ('accepted', 'existing') THEN
            PERFORM forebay_r1.take_job(t.id, p_worker, t.execution, coalesce(t.workflow_id, 'execution-' || t.execution));
            RETURN QUERY SELECT t.id, 'started', t.execution;
        ELSIF t.outcome = 'full' THEN
            later := later || t.id;
            RETURN QUERY SELECT t.id, 'later', NULL::uuid;
        ELSE
            PERFORM forebay_r1.take_job(t.id, p_worker, gen_random_uuid(), NULL);
            PERFORM forebay_r1.finish_job(t.id, NULL, CASE t.outcome WHEN 'draft' THEN 'the definition was never published'
                                                              ELSE 'the definition or its workspace is gone' END, NULL, true);
            RETURN QUERY SELECT t.id, 'failed', NULL::uuid;
        END IF;
    END LOOP;

    FOR t IN SELECT u.id, u.error FROM unnest(p_ids, p_errors) AS u(id, error) WHERE u.id = ANY (taken) AND NOT u.id = ANY (begun) LOOP
        PERFORM forebay_r1.take_job(t.id, p_worker, gen_random_uuid(), NULL);
        PERFORM forebay_r1.finish_job(t.id, '{"skipped": true}', t.error, t.error, true);
        RETURN QUERY SELECT t.id, CASE WHEN t.error IS NULL THEN 'skipped' ELSE 'failed' END, NULL::uuid;
    END LOOP;
    RETURN QUERY SELECT u.id, CASE WHEN u.id = ANY (moved) THEN 'moved' ELSE 'lost' END, NULL::uuid FROM unnest(p_ids) AS u(id)
     WHERE NOT u.id = ANY (taken);
    -- One row, however many jobs wait behind it. Last, and of what nobody else has: it waits for no lock.
    UPDATE forebay.event_binding b SET full_until = now() + interval '5 seconds'
     WHERE b.id = ANY (ARRAY(
        SELECT b.id FROM forebay.event_binding b
         WHERE b.id = ANY (ARRAY(SELECT j.binding_id FROM forebay.workflow_queue_job j WHERE j.id = ANY (later)))
           FOR UPDATE SKIP LOCKED));
END $$;

CREATE FUNCTION forebay_r1.stream_version(p_workspace uuid, p_stream uuid, p_stream_type text) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(
        CASE WHEN p_workspace IS NULL
             THEN (SELECT e.stream_version FROM public.domain_events e
                    WHERE e.stream_id = p_stream AND e.stream_type = p_stream_type AND e.workspace_id IS NULL
                    ORDER BY e.workspace_id DESC, e.stream_version DESC LIMIT 1)
             ELSE (SELECT e.stream_version FROM public.domain_events e
                    WHERE e.stream_id = p_stream AND e.stream_type = p_stream_type AND e.workspace_id = p_workspace
                    ORDER BY e.stream_version DESC LIMIT 1) END, 0)
$$;

CREATE FUNCTION forebay_r1.take_answers(p_holder uuid, p_owner uuid, p_epoch bigint) RETURNS TABLE(held boolean, execution uuid, node text, iteration integer, attempt integer, status text, outcome text, output jsonb, error jsonb, answered_by text, answered_at timestamp with time zone)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    UPDATE forebay.workflow_execution e SET wake_at = CASE WHEN e.cancel_requested_at IS NOT NULL THEN e.wake_at END
     WHERE e.id = p_holder AND e.owner = p_owner AND e.owner_epoch = p_epoch AND e.status = 'RUNNING';
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text, NULL::timestamptz;
        RETURN;
    END IF;
    UPDATE forebay.workflow_execution_ask a SET status = 'EXPIRED', lease_until = NULL, look = false
     WHERE a.holder = p_holder AND a.status IN ('OPEN', 'CLAIMED') AND a.expires_at <= clock_timestamp();
    RETURN QUERY
    UPDATE forebay.workflow_execution_ask a
       SET status = CASE a.status WHEN 'ANSWERED' THEN 'TAKEN' ELSE a.status END, seen_at = clock_timestamp()
     WHERE a.holder = p_holder AND a.seen_at IS NULL AND a.status IN ('ANSWERED', 'EXPIRED')
    RETURNING true, a.execution_id, a.node, a.iteration, a.attempt, a.status, a.outcome, a.output, a.error, a.answered_by, a.answered_at;
    RETURN QUERY SELECT true, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text, NULL::timestamptz;
END $$;

CREATE FUNCTION forebay_r1.take_candidates(p_after uuid, p_limit integer, p_lease_s double precision) RETURNS TABLE(claim uuid, workspace uuid, execution uuid, node text, iteration integer, match text, event uuid, candidate bigint, wait uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_claim CONSTANT uuid := gen_random_uuid();
    v_place uuid := forebay_r1.next_to_judge(p_after);
    v_left int := p_limit;
    v_seen int;
    c forebay.workflow_execution_candidate;
    r record;
BEGIN
    IF v_place IS NULL THEN
        RETURN;
    END IF;
    FOR c IN SELECT * FROM forebay.workflow_execution_candidate c
              WHERE c.workspace_id = v_place AND (c.taken_until IS NULL OR c.taken_until <= clock_timestamp())
              ORDER BY c.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        v_seen := 0;
        FOR r IN SELECT * FROM forebay_r1.candidate_page(c, v_left) LOOP
            v_seen := v_seen + 1;
            c.next_wait := r.wait;
            c.next_at := r.at;
            c.next_sequence := r.sequence;
            IF r.fits THEN
                RETURN QUERY SELECT v_claim, v_place, r.execution, r.node, r.iteration, r.match, r.event, c.id, r.wait;
            END IF;
        END LOOP;
        IF v_seen = 0 THEN
            DELETE FROM forebay.workflow_execution_candidate d WHERE d.id = c.id;
        ELSE
            UPDATE forebay.workflow_execution_candidate u
               SET taken_by = v_claim, taken_until = clock_timestamp() + make_interval(secs => p_lease_s),
                   next_wait = c.next_wait, next_at = c.next_at, next_sequence = c.next_sequence, more = v_seen >= v_left
             WHERE u.id = c.id;
        END IF;
        v_left := v_left - v_seen;
        EXIT WHEN v_left <= 0;
    END LOOP;
    RETURN QUERY SELECT v_claim, v_place, NULL::uuid, NULL::text, 0, NULL::text, NULL::uuid, NULL::bigint, NULL::uuid;
END $$;

CREATE FUNCTION forebay_r1.take_job(p_id uuid, p_worker text, p_claim uuid, p_workflow_id text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE public.workflow_queue_projection p
       SET status = 'processing', worker_id = p_worker, claimed_at = now(), workflow_id = p_workflow_id,
           workflow_run_id = CASE WHEN p_workflow_id IS NOT NULL THEN p_claim::text END
     WHERE p.id = p_id AND p.status = 'pending';
    UPDATE forebay.workflow_queue_job j SET held = 'ours', claim_id = p_claim, lease_until = NULL WHERE j.id = p_id AND j.held = 'sql';
END $$;

CREATE FUNCTION forebay_r1.take_node(p_execution uuid, p_owner uuid, p_epoch bigint, p_node text, p_iteration integer, p_input jsonb, p_once boolean) RETURNS TABLE(held boolean, status text, label text, attempt integer, fence integer, next_in_ms bigint, error jsonb, again boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_again boolean;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution e
     WHERE e.id = p_execution AND e.owner = p_owner AND e.owner_epoch = p_epoch AND e.status = 'RUNNING' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::text, NULL::text, 0, 0, NULL::bigint, NULL::jsonb, false;
        RETURN;
    END IF;
    v_again := coalesce((SELECT n.status = 'RUNNING' AND n.once FROM forebay.workflow_execution_node n
                          WHERE n.execution_id = p_execution AND n.node = p_node AND n.iteration = p_iteration), false);
    INSERT INTO forebay.workflow_execution_node AS n (execution_id, node, iteration, workspace_id, status, attempt, fence, input, started_at, once)
    SELECT e.id, p_node, p_iteration, e.workspace_id, 'RUNNING', 1, 1, p_input, clock_timestamp(), p_once
      FROM forebay.workflow_execution e WHERE e.id = p_execution
    ON CONFLICT (execution_id, node, iteration) DO UPDATE
       SET status = 'RUNNING', fence = n.fence + 1, input = coalesce(excluded.input, n.input), attempt = greatest(n.attempt, 1),
           started_at = coalesce(n.started_at, excluded.started_at), once = excluded.once OR (n.status = 'RUNNING' AND n.once),
           next_at = CASE WHEN n.status = 'RUNNING' THEN n.next_at END
     WHERE n.status IN ('PENDING', 'RUNNING') OR (n.status = 'RETRYING' AND n.next_at <= clock_timestamp());
    INSERT INTO forebay.change_log (topic, op, refs, workspaces)
    SELECT 'nodes', 'UPDATE', ARRAY[e.id], ARRAY[e.workspace_id] FROM forebay.workflow_execution e WHERE e.id = p_execution;
    RETURN QUERY
    SELECT true, n.status, n.label, n.attempt, n.fence,
           (extract(epoch FROM n.next_at - clock_timestamp()) * 1000)::bigint, n.error, v_again
      FROM forebay.workflow_execution_node n
     WHERE n.execution_id = p_execution AND n.node = p_node AND n.iteration = p_iteration;
END $$;

CREATE FUNCTION forebay_r1.useless_answer(p_execution uuid, p_node text, p_iteration integer) RETURNS text
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    AS $$
    SELECT CASE WHEN bool_or(n.status NOT IN ('PENDING', 'RUNNING', 'RETRYING')) THEN 'settled'
                WHEN bool_or(n.iteration = 0 AND jsonb_typeof(n.input -> 'items') = 'array'
                             AND jsonb_array_length(n.input -> 'items') < p_iteration) THEN 'past' END
      FROM forebay.workflow_execution_node n
     WHERE n.execution_id = p_execution AND n.node = p_node AND n.iteration IN (0, p_iteration)
$$;

CREATE FUNCTION forebay_r1.wake_run(p_holder uuid) RETURNS text
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    UPDATE forebay.workflow_execution e SET wake_at = least(e.wake_at, clock_timestamp())
     WHERE e.id = p_holder AND e.status = 'RUNNING' RETURNING e.engine
$$;

CREATE TABLE forebay.activity (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    workspace_id uuid,
    actor text NOT NULL,
    action text NOT NULL,
    subject_type text NOT NULL,
    subject_id uuid NOT NULL,
    detail jsonb
);

ALTER TABLE forebay.activity ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME forebay.activity_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE forebay.api_key (
    id uuid NOT NULL,
    workspace_id uuid,
    name text NOT NULL,
    hash bytea NOT NULL,
    prefix text,
    scopes text[] DEFAULT '{read,run,manage}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_by text,
    parent_id uuid,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    CONSTRAINT api_key_created_by_check CHECK ((length(created_by) <= 200)),
    CONSTRAINT api_key_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT api_key_prefix_check CHECK ((length(prefix) <= 12)),
    CONSTRAINT api_key_scopes_check CHECK (((scopes <@ '{read,run,manage}'::text[]) AND (cardinality(scopes) > 0)))
);

CREATE TABLE forebay.backlog (
    workspace_id uuid NOT NULL,
    counted integer DEFAULT 0 NOT NULL,
    arrivals bigint DEFAULT 0 NOT NULL,
    counted_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT backlog_counted_check CHECK ((counted >= 0))
)
WITH (fillfactor='20');

CREATE SEQUENCE forebay.backlog_arrivals
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE UNLOGGED TABLE forebay.change_log (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    seq bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    topic text NOT NULL,
    op text NOT NULL,
    refs uuid[] NOT NULL,
    workspaces uuid[] NOT NULL,
    status text,
    record jsonb,
    old_record jsonb,
    CONSTRAINT change_log_check CHECK (((topic <> 'projection'::text) OR (cardinality(refs) = 1))),
    CONSTRAINT change_log_op_check CHECK ((op = ANY (ARRAY['INSERT'::text, 'UPDATE'::text, 'DELETE'::text]))),
    CONSTRAINT change_log_topic_check CHECK ((topic = ANY (ARRAY['execution'::text, 'nodes'::text, 'projection'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05');

CREATE UNLOGGED TABLE forebay.change_log_kept (
    one boolean DEFAULT true NOT NULL,
    gone xid8 NOT NULL,
    CONSTRAINT change_log_kept_one_check CHECK (one)
);

ALTER TABLE forebay.change_log ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME forebay.change_log_seq_seq
    START WITH 1048576
    INCREMENT BY 1048576
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE forebay.event_binding (
    id uuid NOT NULL,
    workspace_id uuid,
    event_type text NOT NULL,
    workflow_definition_id uuid,
    by_definition boolean DEFAULT false NOT NULL,
    filter text,
    input jsonb,
    workflow_id text,
    lease_s integer DEFAULT 900 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    full_until timestamp with time zone,
    CONSTRAINT event_binding_check CHECK (((NOT by_definition) OR (workflow_definition_id IS NOT NULL))),
    CONSTRAINT event_binding_check1 CHECK (((workflow_definition_id IS NOT NULL) OR ((filter IS NULL) AND (input IS NULL) AND (workflow_id IS NULL)))),
    CONSTRAINT event_binding_event_type_check CHECK (((length(event_type) >= 1) AND (length(event_type) <= 200))),
    CONSTRAINT event_binding_lease_s_check CHECK (((lease_s >= 1) AND (lease_s <= 604800)))
);

CREATE TABLE forebay.event_secret (
    one boolean DEFAULT true NOT NULL,
    secret bytea NOT NULL,
    CONSTRAINT event_secret_one_check CHECK (one),
    CONSTRAINT event_secret_secret_check CHECK ((octet_length(secret) = 32))
);

CREATE TABLE forebay.execution_queue (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    claim_id uuid,
    claimed_by uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    available_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    claimed_at timestamp with time zone,
    dispatched_at timestamp with time zone,
    rank bigint NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    takeover_count integer DEFAULT 0 NOT NULL,
    priority smallint DEFAULT 3 NOT NULL,
    stage smallint DEFAULT 0 NOT NULL,
    shard smallint GENERATED ALWAYS AS (forebay.shard_of(workspace_id)) STORED,
    gated boolean DEFAULT false NOT NULL,
    in_doubt boolean DEFAULT false NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    concurrency_key text,
    last_error text,
    CONSTRAINT execution_queue_check CHECK ((id = execution_id)),
    CONSTRAINT execution_queue_check1 CHECK (((stage <> 2) OR (concurrency_key IS NOT NULL))),
    CONSTRAINT execution_queue_check2 CHECK (
CASE status
    WHEN 'PENDING'::text THEN ((stage = ANY (ARRAY[0, 1, 2, 3])) AND (claim_id IS NULL) AND (claimed_by IS NULL) AND (claimed_at IS NULL) AND (dispatched_at IS NULL))
    WHEN 'CLAIMED'::text THEN ((stage = 5) AND (claim_id IS NOT NULL) AND (claimed_by IS NOT NULL) AND (claimed_at IS NOT NULL) AND (dispatched_at IS NULL))
    WHEN 'DISPATCHED'::text THEN ((stage = 5) AND (claim_id IS NOT NULL) AND (claimed_by IS NOT NULL) AND (claimed_at IS NOT NULL) AND (dispatched_at IS NOT NULL))
    WHEN 'FAILED'::text THEN ((stage = 9) AND (last_error IS NOT NULL))
    ELSE false
END),
    CONSTRAINT execution_queue_priority_check CHECK (((priority >= 1) AND (priority <= 5)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='100000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE forebay.hook (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    rule jsonb NOT NULL,
    token_hash bytea,
    token_prefix text,
    previous_hash bytea,
    previous_until timestamp with time zone,
    rotated_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT hook_check CHECK (((token_hash IS NULL) = (token_prefix IS NULL))),
    CONSTRAINT hook_check1 CHECK (((previous_hash IS NULL) = (previous_until IS NULL)))
);

CREATE TABLE forebay.process (
    id uuid NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    roles text[] NOT NULL,
    version text NOT NULL,
    release integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    died boolean DEFAULT false NOT NULL,
    dispatching boolean DEFAULT false NOT NULL,
    has_room boolean DEFAULT false NOT NULL,
    waiting_runs integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='20');

CREATE TABLE forebay.protocol (
    one boolean DEFAULT true NOT NULL,
    number integer NOT NULL,
    CONSTRAINT protocol_one_check CHECK (one)
);

CREATE TABLE forebay.release (
    number integer NOT NULL,
    made_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    functions text DEFAULT ''::text NOT NULL,
    shared_functions text DEFAULT ''::text NOT NULL
);

CREATE TABLE forebay.retired_execution (
    id uuid NOT NULL
);

CREATE TABLE forebay.schedule (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    by_definition boolean DEFAULT false NOT NULL,
    cron text,
    timezone text,
    run_at timestamp with time zone,
    input jsonb,
    priority smallint DEFAULT 3 NOT NULL,
    concurrency_key text,
    overlap text NOT NULL,
    catch_up text NOT NULL,
    status text DEFAULT 'ACTIVE'::text NOT NULL,
    reason text,
    next_at timestamp with time zone,
    buffered_at timestamp with time zone,
    retry_at timestamp with time zone,
    revision integer DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT schedule_catch_up_check CHECK ((catch_up = ANY (ARRAY['skip'::text, 'last'::text, 'all'::text]))),
    CONSTRAINT schedule_check CHECK ((((cron IS NULL) = (timezone IS NULL)) AND ((cron IS NULL) <> (run_at IS NULL)))),
    CONSTRAINT schedule_check1 CHECK ((((status = 'ENDED'::text) = (next_at IS NULL)) AND ((status = 'ENDED'::text) = (reason IS NOT NULL)))),
    CONSTRAINT schedule_check2 CHECK (((buffered_at IS NULL) OR (status <> 'ENDED'::text))),
    CONSTRAINT schedule_check3 CHECK (((NOT by_definition) OR (cron IS NOT NULL))),
    CONSTRAINT schedule_concurrency_key_check CHECK (((length(concurrency_key) >= 1) AND (length(concurrency_key) <= 200))),
    CONSTRAINT schedule_cron_check CHECK (((length(cron) >= 1) AND (length(cron) <= 200))),
    CONSTRAINT schedule_overlap_check CHECK ((overlap = ANY (ARRAY['skip'::text, 'buffer_one'::text, 'allow'::text]))),
    CONSTRAINT schedule_priority_check CHECK (((priority >= 1) AND (priority <= 5))),
    CONSTRAINT schedule_status_check CHECK ((status = ANY (ARRAY['ACTIVE'::text, 'PAUSED'::text, 'ENDED'::text])))
);

CREATE TABLE forebay.schedule_tick (
    schedule_id uuid NOT NULL,
    tick_at timestamp with time zone NOT NULL,
    by_hand boolean DEFAULT false NOT NULL,
    status text NOT NULL,
    reason text,
    execution_id uuid,
    decided_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT schedule_tick_check CHECK (((status = 'STARTED'::text) = (execution_id IS NOT NULL))),
    CONSTRAINT schedule_tick_check1 CHECK (((status = ANY (ARRAY['STARTED'::text, 'BUFFERED'::text])) OR (reason IS NOT NULL))),
    CONSTRAINT schedule_tick_status_check CHECK ((status = ANY (ARRAY['STARTED'::text, 'BUFFERED'::text, 'SKIPPED'::text, 'FAILED'::text, 'REFUSED'::text])))
);

CREATE TABLE forebay.secret (
    workspace_id uuid NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    value_sealed bytea NOT NULL,
    key_sealed bytea NOT NULL,
    key_id text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_by text NOT NULL,
    hosts text[],
    CONSTRAINT secret_hosts_check CHECK (((cardinality(hosts) >= 1) AND (cardinality(hosts) <= 20))),
    CONSTRAINT secret_key_id_check CHECK (((length(key_id) >= 1) AND (length(key_id) <= 32))),
    CONSTRAINT secret_key_sealed_check CHECK ((length(key_sealed) <= 200)),
    CONSTRAINT secret_name_check CHECK ((name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$'::text)),
    CONSTRAINT secret_value_sealed_check CHECK ((length(value_sealed) <= 66000)),
    CONSTRAINT secret_version_check CHECK ((version >= 1))
);

CREATE TABLE forebay.shard_owner (
    shard smallint NOT NULL,
    owner uuid,
    until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL
)
WITH (fillfactor='20');

CREATE TABLE forebay.tier (
    name text NOT NULL,
    max_running integer NOT NULL,
    max_backlog integer,
    CONSTRAINT tier_max_backlog_check CHECK ((max_backlog >= 0)),
    CONSTRAINT tier_max_running_check CHECK ((max_running >= 0))
);

CREATE TABLE forebay.webhook (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    url text NOT NULL,
    events text[] NOT NULL,
    workflow_definition_id uuid,
    description text,
    failing_since timestamp with time zone,
    disabled_at timestamp with time zone,
    disabled_reason text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_by text NOT NULL,
    CONSTRAINT webhook_check CHECK (((disabled_at IS NULL) = (disabled_reason IS NULL))),
    CONSTRAINT webhook_description_check CHECK ((length(description) <= 500)),
    CONSTRAINT webhook_events_check CHECK ((((cardinality(events) >= 1) AND (cardinality(events) <= 4)) AND (events <@ ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELED'::text, 'TIMED_OUT'::text]))),
    CONSTRAINT webhook_url_check CHECK (((length(url) >= 1) AND (length(url) <= 2048)))
);

CREATE TABLE forebay.webhook_delivery (
    id uuid NOT NULL,
    webhook_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    event text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    due_at timestamp with time zone,
    claim_id uuid,
    attempts integer DEFAULT 0 NOT NULL,
    last_status integer,
    last_error text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT webhook_delivery_check CHECK (((status = ANY (ARRAY['PENDING'::text, 'SENDING'::text])) = (due_at IS NOT NULL))),
    CONSTRAINT webhook_delivery_check1 CHECK (((status = 'SENDING'::text) = (claim_id IS NOT NULL))),
    CONSTRAINT webhook_delivery_check2 CHECK (((status = ANY (ARRAY['DELIVERED'::text, 'FAILED'::text])) = (ended_at IS NOT NULL))),
    CONSTRAINT webhook_delivery_last_error_check CHECK ((length(last_error) <= 1000)),
    CONSTRAINT webhook_delivery_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'SENDING'::text, 'DELIVERED'::text, 'FAILED'::text])))
)
WITH (fillfactor='80');

CREATE TABLE forebay.webhook_secret (
    webhook_id uuid NOT NULL,
    version integer NOT NULL,
    workspace_id uuid NOT NULL,
    value_sealed bytea NOT NULL,
    key_sealed bytea NOT NULL,
    key_id text NOT NULL,
    ends_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT webhook_secret_key_id_check CHECK (((length(key_id) >= 1) AND (length(key_id) <= 32))),
    CONSTRAINT webhook_secret_key_sealed_check CHECK ((length(key_sealed) <= 200)),
    CONSTRAINT webhook_secret_value_sealed_check CHECK ((length(value_sealed) <= 200)),
    CONSTRAINT webhook_secret_version_check CHECK ((version >= 1))
);

CREATE TABLE forebay.workflow_definition (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    name text NOT NULL,
    status text DEFAULT 'DRAFT'::text NOT NULL,
    published_version uuid,
    concurrency integer,
    key_concurrency integer DEFAULT 1 NOT NULL,
    max_attempts integer DEFAULT 3 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    cleared_at timestamp with time zone,
    CONSTRAINT workflow_definition_check CHECK (((status = 'DRAFT'::text) OR (published_version IS NOT NULL))),
    CONSTRAINT workflow_definition_concurrency_check CHECK ((concurrency >= 0)),
    CONSTRAINT workflow_definition_key_concurrency_check CHECK ((key_concurrency >= 0)),
    CONSTRAINT workflow_definition_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 100))),
    CONSTRAINT workflow_definition_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT workflow_definition_status_check CHECK ((status = ANY (ARRAY['DRAFT'::text, 'ACTIVE'::text, 'PAUSED'::text])))
);

CREATE TABLE forebay.workflow_definition_version (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    number integer NOT NULL,
    graph jsonb NOT NULL,
    content_hash text NOT NULL,
    source text,
    timeout_ms bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT workflow_definition_version_number_check CHECK ((number >= 1)),
    CONSTRAINT workflow_definition_version_timeout_ms_check CHECK ((timeout_ms > 0))
);

CREATE TABLE forebay.workflow_execution (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    version_id uuid NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    semantics integer NOT NULL,
    engine text,
    engine_run_id text,
    engine_where text,
    trigger jsonb DEFAULT '{}'::jsonb NOT NULL,
    input jsonb,
    output jsonb,
    error jsonb,
    priority smallint DEFAULT 3 NOT NULL,
    concurrency_key text,
    idempotency_key text,
    fingerprint bytea,
    timeout_ms bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    duration_ms bigint,
    deadline_at timestamp with time zone NOT NULL,
    cancel_requested_at timestamp with time zone,
    terminate_requested_at timestamp with time zone,
    owner uuid,
    owner_epoch bigint DEFAULT 0 NOT NULL,
    last_seq bigint DEFAULT 0 NOT NULL,
    wake_at timestamp with time zone,
    deaths integer DEFAULT 0 NOT NULL,
    deaths_seq bigint,
    alone boolean DEFAULT false NOT NULL,
    parent uuid,
    root uuid,
    parent_node text,
    parent_iteration integer,
    parent_attempt integer,
    depth smallint DEFAULT 0 NOT NULL,
    descendants integer DEFAULT 0 NOT NULL,
    tree_seq bigint DEFAULT 0 NOT NULL,
    rerun_of uuid,
    trace_context text,
    CONSTRAINT workflow_execution_check CHECK (((idempotency_key IS NULL) = (fingerprint IS NULL))),
    CONSTRAINT workflow_execution_check1 CHECK (
CASE status
    WHEN 'PENDING'::text THEN ((started_at IS NULL) AND (completed_at IS NULL) AND (owner IS NULL))
    WHEN 'RUNNING'::text THEN ((started_at IS NOT NULL) AND (completed_at IS NULL) AND (engine IS NOT NULL))
    ELSE ((completed_at IS NOT NULL) AND (owner IS NULL))
END),
    CONSTRAINT workflow_execution_parent CHECK ((((parent IS NULL) = (parent_node IS NULL)) AND ((parent IS NULL) = (parent_iteration IS NULL)) AND ((parent IS NULL) = (parent_attempt IS NULL)) AND ((parent IS NULL) = (depth = 0)))),
    CONSTRAINT workflow_execution_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'RUNNING'::text, 'COMPLETED'::text, 'FAILED'::text, 'CANCELED'::text, 'TIMED_OUT'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_insert_scale_factor='0.05');

ALTER TABLE forebay.workflow_execution_candidate ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME forebay.workflow_execution_candidate_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE forebay.workflow_execution_node (
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration integer DEFAULT 0 NOT NULL,
    workspace_id uuid NOT NULL,
    status text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    fence integer DEFAULT 0 NOT NULL,
    seq bigint,
    label text,
    next_at timestamp with time zone,
    input jsonb,
    output jsonb,
    error jsonb,
    earlier jsonb,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    duration_ms bigint,
    kept_from uuid,
    once boolean DEFAULT false NOT NULL,
    CONSTRAINT workflow_execution_node_check CHECK (((status = ANY (ARRAY['PENDING'::text, 'RUNNING'::text, 'RETRYING'::text])) = (completed_at IS NULL))),
    CONSTRAINT workflow_execution_node_check1 CHECK (((completed_at IS NULL) = (seq IS NULL))),
    CONSTRAINT workflow_execution_node_check2 CHECK (((status <> 'RETRYING'::text) OR (next_at IS NOT NULL))),
    CONSTRAINT workflow_execution_node_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'RUNNING'::text, 'RETRYING'::text, 'COMPLETED'::text, 'FAILED'::text, 'SKIPPED'::text, 'CANCELED'::text, 'UNKNOWN'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_insert_scale_factor='0.1');

CREATE TABLE forebay.workflow_execution_token (
    hash bytea NOT NULL,
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration integer NOT NULL,
    workspace_id uuid NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    CONSTRAINT workflow_execution_token_hash_check CHECK ((length(hash) = 32))
);

CREATE TABLE forebay.workspace (
    id uuid NOT NULL,
    name text NOT NULL,
    tier text NOT NULL,
    limit_override integer,
    paused boolean DEFAULT false NOT NULL,
    weight smallint DEFAULT 1 NOT NULL,
    max_backlog integer,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    shard smallint GENERATED ALWAYS AS (forebay.shard_of(id)) STORED,
    outbound_allow text[] DEFAULT '{}'::text[] NOT NULL,
    outbound_deny text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT workspace_limit_override_check CHECK ((limit_override >= 0)),
    CONSTRAINT workspace_max_backlog_check CHECK ((max_backlog >= 0)),
    CONSTRAINT workspace_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT workspace_outbound_check CHECK (((cardinality(outbound_allow) <= 100) AND (cardinality(outbound_deny) <= 100))),
    CONSTRAINT workspace_weight_check CHECK (((weight >= 1) AND (weight <= 100)))
);

ALTER TABLE public.domain_events ALTER COLUMN sequence ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.domain_events_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.shedlock (
    name character varying(64) NOT NULL,
    lock_until timestamp without time zone NOT NULL,
    locked_at timestamp without time zone NOT NULL,
    locked_by character varying(255) NOT NULL
);

CREATE VIEW public.workflow_execution_queue AS
 SELECT execution_queue.id,
    execution_queue.workspace_id,
    execution_queue.workflow_definition_id,
    execution_queue.execution_id,
    execution_queue.claim_id,
    execution_queue.claimed_by,
    execution_queue.created_at,
    execution_queue.available_at,
    execution_queue.claimed_at,
    execution_queue.dispatched_at,
    execution_queue.rank,
    execution_queue.attempt_count,
    execution_queue.takeover_count,
    execution_queue.priority,
    execution_queue.stage,
    execution_queue.shard,
    execution_queue.gated,
    execution_queue.in_doubt,
    execution_queue.status,
    execution_queue.concurrency_key,
    execution_queue.last_error
   FROM forebay.execution_queue;

ALTER TABLE ONLY forebay.activity
    ADD CONSTRAINT activity_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.api_key
    ADD CONSTRAINT api_key_hash_key UNIQUE (hash);

ALTER TABLE ONLY forebay.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.backlog
    ADD CONSTRAINT backlog_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY forebay.change_log_kept
    ADD CONSTRAINT change_log_kept_pkey PRIMARY KEY (one);

ALTER TABLE ONLY forebay.change_log
    ADD CONSTRAINT change_log_pkey PRIMARY KEY (xid, seq);

ALTER TABLE ONLY forebay.event_binding
    ADD CONSTRAINT event_binding_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.event_secret
    ADD CONSTRAINT event_secret_pkey PRIMARY KEY (one);

ALTER TABLE ONLY forebay.execution_queue
    ADD CONSTRAINT execution_queue_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.hook
    ADD CONSTRAINT hook_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.hook
    ADD CONSTRAINT hook_previous_hash_key UNIQUE (previous_hash);

ALTER TABLE ONLY forebay.hook
    ADD CONSTRAINT hook_token_hash_key UNIQUE (token_hash);

ALTER TABLE ONLY forebay.hook
    ADD CONSTRAINT hook_workflow_definition_id_key UNIQUE (workflow_definition_id);

ALTER TABLE ONLY forebay.process
    ADD CONSTRAINT process_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.protocol
    ADD CONSTRAINT protocol_pkey PRIMARY KEY (one);

ALTER TABLE ONLY forebay.release
    ADD CONSTRAINT release_pkey PRIMARY KEY (number);

ALTER TABLE ONLY forebay.retired_execution
    ADD CONSTRAINT retired_execution_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.schedule_tick
    ADD CONSTRAINT schedule_tick_pkey PRIMARY KEY (schedule_id, tick_at, by_hand);

ALTER TABLE ONLY forebay.secret
    ADD CONSTRAINT secret_pkey PRIMARY KEY (workspace_id, name);

ALTER TABLE ONLY forebay.shard_owner
    ADD CONSTRAINT shard_owner_pkey PRIMARY KEY (shard);

ALTER TABLE ONLY forebay.tier
    ADD CONSTRAINT tier_pkey PRIMARY KEY (name);

ALTER TABLE ONLY forebay.webhook_delivery
    ADD CONSTRAINT webhook_delivery_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.webhook_delivery
    ADD CONSTRAINT webhook_delivery_webhook_id_execution_id_key UNIQUE (webhook_id, execution_id);

ALTER TABLE ONLY forebay.webhook
    ADD CONSTRAINT webhook_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.webhook_secret
    ADD CONSTRAINT webhook_secret_pkey PRIMARY KEY (webhook_id, version);

ALTER TABLE ONLY forebay.workflow_definition
    ADD CONSTRAINT workflow_definition_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.workflow_definition_version
    ADD CONSTRAINT workflow_definition_version_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.workflow_definition_version
    ADD CONSTRAINT workflow_definition_version_workflow_definition_id_number_key UNIQUE (workflow_definition_id, number);

ALTER TABLE ONLY forebay.workflow_execution_ask
    ADD CONSTRAINT workflow_execution_ask_id_key UNIQUE (id);

ALTER TABLE ONLY forebay.workflow_execution_ask
    ADD CONSTRAINT workflow_execution_ask_pkey PRIMARY KEY (execution_id, node, iteration);

ALTER TABLE ONLY forebay.workflow_execution_candidate
    ADD CONSTRAINT workflow_execution_candidate_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.workflow_execution_node
    ADD CONSTRAINT workflow_execution_node_pkey PRIMARY KEY (execution_id, node, iteration);

ALTER TABLE ONLY forebay.workflow_execution
    ADD CONSTRAINT workflow_execution_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.workflow_execution_token
    ADD CONSTRAINT workflow_execution_token_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY forebay.workflow_queue_job
    ADD CONSTRAINT workflow_queue_job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.workspace
    ADD CONSTRAINT workspace_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.domain_events
    ADD CONSTRAINT domain_events_id UNIQUE NULLS NOT DISTINCT (id, workspace_id);

ALTER TABLE ONLY public.domain_events
    ADD CONSTRAINT domain_events_pkey PRIMARY KEY (sequence);

ALTER TABLE ONLY public.domain_events
    ADD CONSTRAINT domain_events_stream UNIQUE NULLS NOT DISTINCT (stream_id, stream_type, workspace_id, stream_version);

ALTER TABLE ONLY public.shedlock
    ADD CONSTRAINT shedlock_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.workflow_queue_projection
    ADD CONSTRAINT workflow_queue_projection_pkey PRIMARY KEY (id);

CREATE INDEX activity_of_all ON forebay.activity USING btree (at, id);

CREATE INDEX activity_of_subject ON forebay.activity USING btree (subject_id, at, id);

CREATE INDEX activity_of_workspace ON forebay.activity USING btree (workspace_id, at, id);

CREATE INDEX api_key_made_with ON forebay.api_key USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX api_key_of_all ON forebay.api_key USING btree (id) WHERE (revoked_at IS NULL);

CREATE INDEX api_key_of_workspace ON forebay.api_key USING btree (workspace_id, id) WHERE (revoked_at IS NULL);

CREATE INDEX event_binding_of_definition ON forebay.event_binding USING btree (workflow_definition_id) WHERE (workflow_definition_id IS NOT NULL);

CREATE INDEX event_binding_of_workspace ON forebay.event_binding USING btree (workspace_id, id);

CREATE UNIQUE INDEX event_binding_type ON forebay.event_binding USING btree (event_type, workspace_id) NULLS NOT DISTINCT;

CREATE INDEX execution_queue_claimed ON forebay.execution_queue USING btree (shard, id) WHERE (status = 'CLAIMED'::text);

CREATE INDEX execution_queue_definition ON forebay.execution_queue USING btree (shard, workspace_id, workflow_definition_id, rank, id) WHERE (stage = 3);

CREATE INDEX execution_queue_delayed ON forebay.execution_queue USING btree (shard, workspace_id, workflow_definition_id) WHERE (stage = 1);

CREATE INDEX execution_queue_due ON forebay.execution_queue USING btree (available_at) WHERE (stage = 1);

CREATE INDEX execution_queue_gated ON forebay.execution_queue USING btree (workspace_id, workflow_definition_id) WHERE (gated AND (stage = ANY (ARRAY[0, 5])));

CREATE INDEX execution_queue_key ON forebay.execution_queue USING btree (shard, workspace_id, workflow_definition_id, concurrency_key, rank, id) WHERE (stage = 2);

CREATE INDEX execution_queue_keyed ON forebay.execution_queue USING btree (workspace_id, workflow_definition_id, concurrency_key) WHERE ((concurrency_key IS NOT NULL) AND (stage = ANY (ARRAY[0, 3, 5])));

CREATE INDEX execution_queue_letter ON forebay.execution_queue USING btree (id) WHERE (stage = 9);

CREATE INDEX execution_queue_letter_by_definition ON forebay.execution_queue USING btree (workflow_definition_id, id) WHERE (stage = 9);

CREATE INDEX execution_queue_letter_by_workspace ON forebay.execution_queue USING btree (workspace_id, id) WHERE (stage = 9);

CREATE INDEX execution_queue_ready ON forebay.execution_queue USING btree (shard, workspace_id, rank, id) WHERE (stage = 0);

CREATE INDEX execution_queue_slot ON forebay.execution_queue USING btree (shard, workspace_id) WHERE (stage = 5);

CREATE INDEX execution_queue_slot_in_order ON forebay.execution_queue USING btree (id) WHERE (stage = 5);

CREATE INDEX hook_of_workspace ON forebay.hook USING btree (workspace_id, id);

CREATE INDEX schedule_buffered ON forebay.schedule USING btree (id) WHERE ((status = 'ACTIVE'::text) AND (buffered_at IS NOT NULL));

CREATE INDEX schedule_due ON forebay.schedule USING btree (GREATEST(next_at, retry_at), id) WHERE (status = 'ACTIVE'::text);

CREATE INDEX schedule_ended ON forebay.schedule USING btree (updated_at) WHERE (status = 'ENDED'::text);

CREATE INDEX schedule_of_definition ON forebay.schedule USING btree (workflow_definition_id);

CREATE UNIQUE INDEX schedule_of_document ON forebay.schedule USING btree (workflow_definition_id, cron, timezone) WHERE by_definition;

CREATE INDEX schedule_of_workspace ON forebay.schedule USING btree (workspace_id, id);

CREATE INDEX schedule_tick_started ON forebay.schedule_tick USING btree (schedule_id, tick_at) WHERE (status = 'STARTED'::text);

CREATE INDEX secret_of_key ON forebay.secret USING btree (key_id);

CREATE INDEX webhook_delivery_created ON forebay.webhook_delivery USING btree (created_at);

CREATE INDEX webhook_delivery_due ON forebay.webhook_delivery USING btree (workspace_id, due_at, id) WHERE (due_at IS NOT NULL);

CREATE INDEX webhook_delivery_of_webhook ON forebay.webhook_delivery USING btree (webhook_id, created_at, id);

CREATE INDEX webhook_delivery_oldest ON forebay.webhook_delivery USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX webhook_delivery_sending ON forebay.webhook_delivery USING btree (workspace_id) WHERE (status = 'SENDING'::text);

CREATE INDEX webhook_live ON forebay.webhook USING btree (workspace_id) WHERE (disabled_at IS NULL);

CREATE INDEX webhook_of_workspace ON forebay.webhook USING btree (workspace_id, id);

CREATE UNIQUE INDEX webhook_secret_newest ON forebay.webhook_secret USING btree (webhook_id) WHERE (ends_at IS NULL);

CREATE INDEX webhook_secret_of_key ON forebay.webhook_secret USING btree (key_id);

CREATE INDEX workflow_definition_clearing ON forebay.workflow_definition USING btree (workspace_id) WHERE ((deleted_at IS NOT NULL) AND (cleared_at IS NULL));

CREATE UNIQUE INDEX workflow_definition_living_name ON forebay.workflow_definition USING btree (workspace_id, name) WHERE (deleted_at IS NULL);

CREATE INDEX workflow_execution_ask_event ON forebay.workflow_execution_ask USING btree (workspace_id, event_type, id) WHERE ((status = 'OPEN'::text) AND (event_type IS NOT NULL));

CREATE INDEX workflow_execution_ask_expiry ON forebay.workflow_execution_ask USING btree (expires_at) WHERE ((status = ANY (ARRAY['OPEN'::text, 'CLAIMED'::text])) AND (expires_at IS NOT NULL));

CREATE INDEX workflow_execution_ask_lease ON forebay.workflow_execution_ask USING btree (lease_until) WHERE (status = 'CLAIMED'::text);

CREATE INDEX workflow_execution_ask_look ON forebay.workflow_execution_ask USING btree (look_xid) WHERE look;

CREATE INDEX workflow_execution_ask_news ON forebay.workflow_execution_ask USING btree (holder) WHERE ((seen_at IS NULL) AND (status = ANY (ARRAY['ANSWERED'::text, 'EXPIRED'::text])));

CREATE INDEX workflow_execution_ask_offer ON forebay.workflow_execution_ask USING btree (queue, workspace_id, opened_at, id) WHERE ((status = 'OPEN'::text) AND (kind = 'TASK'::text));

CREATE INDEX workflow_execution_ask_open ON forebay.workflow_execution_ask USING btree (holder, expires_at) WHERE (status = ANY (ARRAY['OPEN'::text, 'CLAIMED'::text]));

CREATE INDEX workflow_execution_ask_task ON forebay.workflow_execution_ask USING btree (id) WHERE (kind = 'TASK'::text);

CREATE INDEX workflow_execution_ask_task_of ON forebay.workflow_execution_ask USING btree (workspace_id, id) WHERE (kind = 'TASK'::text);

CREATE INDEX workflow_execution_called ON forebay.workflow_execution USING btree (owner) WHERE ((wake_at IS NOT NULL) AND (owner IS NOT NULL));

CREATE INDEX workflow_execution_canceling ON forebay.workflow_execution USING btree (owner) WHERE ((cancel_requested_at IS NOT NULL) AND (completed_at IS NULL));

CREATE INDEX workflow_execution_candidate_of ON forebay.workflow_execution_candidate USING btree (execution_id) WHERE (execution_id IS NOT NULL);

CREATE INDEX workflow_execution_candidate_taken ON forebay.workflow_execution_candidate USING btree (taken_by) WHERE (taken_by IS NOT NULL);

CREATE INDEX workflow_execution_candidate_turn ON forebay.workflow_execution_candidate USING btree (workspace_id, id);

CREATE UNIQUE INDEX workflow_execution_child ON forebay.workflow_execution USING btree (parent, parent_node, parent_iteration, parent_attempt) WHERE (parent IS NOT NULL);

CREATE INDEX workflow_execution_deadline ON forebay.workflow_execution USING btree (deadline_at) WHERE ((completed_at IS NULL) AND (owner IS NULL) AND (parent IS NULL));

CREATE UNIQUE INDEX workflow_execution_idempotency ON forebay.workflow_execution USING btree (workspace_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);

CREATE INDEX workflow_execution_of_all ON forebay.workflow_execution USING btree (status COLLATE "C", created_at, id) WHERE (depth < 1);

CREATE INDEX workflow_execution_of_definition ON forebay.workflow_execution USING btree (workflow_definition_id, status COLLATE "C", created_at, id) WHERE (depth < 1);

CREATE INDEX workflow_execution_of_workspace ON forebay.workflow_execution USING btree (workspace_id, status COLLATE "C", created_at, id) WHERE (depth < 1);

CREATE INDEX workflow_execution_open_child ON forebay.workflow_execution USING btree (parent) WHERE ((parent IS NOT NULL) AND (completed_at IS NULL));

CREATE INDEX workflow_execution_owned ON forebay.workflow_execution USING btree (engine, owner) WHERE (owner IS NOT NULL);

CREATE INDEX workflow_execution_root ON forebay.workflow_execution USING btree (root) WHERE (root IS NOT NULL);

CREATE INDEX workflow_execution_token_of ON forebay.workflow_execution_token USING btree (execution_id, node, iteration);

CREATE INDEX workflow_execution_wake ON forebay.workflow_execution USING btree (wake_at) WHERE (wake_at IS NOT NULL);

CREATE INDEX workflow_queue_job_claim ON forebay.workflow_queue_job USING btree (claim_id) WHERE (claim_id IS NOT NULL);

CREATE UNIQUE INDEX workflow_queue_job_event ON forebay.workflow_queue_job USING btree (event_id, event_workspace_id) NULLS NOT DISTINCT WHERE (event_id IS NOT NULL);

CREATE INDEX workflow_queue_job_lease ON forebay.workflow_queue_job USING btree (lease_until) WHERE (lease_until IS NOT NULL);

CREATE INDEX workflow_queue_job_of_binding ON forebay.workflow_queue_job USING btree (binding_id, due_at, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_of_type ON forebay.workflow_queue_job USING btree (event_type, pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_of_workspace ON forebay.workflow_queue_job USING btree (workspace_id, id);

CREATE INDEX workflow_queue_job_of_workspace_type ON forebay.workflow_queue_job USING btree (workspace_id, event_type, pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_ours ON forebay.workflow_queue_job USING btree (id) WHERE (held = 'ours'::text);

CREATE INDEX workflow_queue_job_pending ON forebay.workflow_queue_job USING btree (pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_pending_of ON forebay.workflow_queue_job USING btree (workspace_id, pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_retry ON forebay.workflow_queue_job USING btree (retry_from) WHERE (retry_from IS NOT NULL);

CREATE UNIQUE INDEX workspace_living_name ON forebay.workspace USING btree (name) WHERE (deleted_at IS NULL);

CREATE INDEX domain_events_by_type ON public.domain_events USING btree (event_type, sequence);

CREATE INDEX domain_events_by_workspace ON public.domain_events USING btree (workspace_id, sequence);

CREATE INDEX domain_events_of_type ON public.domain_events USING btree (workspace_id, event_type, created_at, sequence) WHERE (stream_type <> 'workflow_queue'::text);

CREATE INDEX domain_events_of_workspace_type ON public.domain_events USING btree (workspace_id, event_type, sequence);

CREATE INDEX domain_events_to_fold ON public.domain_events USING btree (processing_failed_at) WHERE ("left"(processing_error, 2) = ANY (ARRAY['08'::text, '25'::text, '40'::text, '53'::text, '55'::text, '57'::text, '58'::text]));

CREATE INDEX domain_events_trouble ON public.domain_events USING btree (sequence) WHERE (processing_error IS NOT NULL);

CREATE INDEX domain_events_trouble_of_workspace ON public.domain_events USING btree (workspace_id, sequence) WHERE (processing_error IS NOT NULL);

CREATE INDEX workflow_queue_projection_created ON public.workflow_queue_projection USING btree (created_at);

CREATE INDEX workflow_queue_projection_event ON public.workflow_queue_projection USING btree (event_id);

CREATE INDEX workflow_queue_projection_status ON public.workflow_queue_projection USING btree (status, created_at);

CREATE INDEX workflow_queue_projection_stream ON public.workflow_queue_projection USING btree (stream_id, created_at);

CREATE TRIGGER fence BEFORE UPDATE OF max_running ON forebay.tier FOR EACH ROW EXECUTE FUNCTION forebay.fence();

CREATE TRIGGER fence BEFORE UPDATE OF status, concurrency, key_concurrency, deleted_at ON forebay.workflow_definition FOR EACH ROW EXECUTE FUNCTION forebay.fence();

CREATE TRIGGER fence BEFORE UPDATE OF tier, limit_override, paused, deleted_at ON forebay.workspace FOR EACH ROW EXECUTE FUNCTION forebay.fence();

CREATE TRIGGER forebay_bound BEFORE INSERT ON public.domain_events FOR EACH ROW WHEN ((new.stream_type <> 'workflow_queue'::text)) EXECUTE FUNCTION forebay.event_bound();

CREATE TRIGGER forebay_facts BEFORE INSERT ON public.domain_events FOR EACH ROW WHEN ((new.stream_type = 'workflow_queue'::text)) EXECUTE FUNCTION forebay.fact_guard();

CREATE TRIGGER forebay_fold AFTER INSERT ON public.domain_events FOR EACH ROW WHEN ((new.stream_type <> 'workflow_queue'::text)) EXECUTE FUNCTION forebay.event_added();

CREATE TRIGGER forebay_guard BEFORE DELETE OR UPDATE OF id, sequence, workspace_id, stream_id, stream_type, stream_version, event_type, event_data, event_metadata, created_at ON public.domain_events FOR EACH ROW EXECUTE FUNCTION forebay.event_guard();

CREATE TRIGGER forebay_guard BEFORE INSERT OR DELETE OR UPDATE ON public.workflow_queue_projection FOR EACH ROW EXECUTE FUNCTION forebay.job_guard();

CREATE TRIGGER forebay_moved AFTER INSERT OR DELETE OR UPDATE ON public.workflow_queue_projection FOR EACH ROW EXECUTE FUNCTION forebay.job_moved();

CREATE TRIGGER forebay_truncate BEFORE TRUNCATE ON public.domain_events FOR EACH STATEMENT EXECUTE FUNCTION forebay.event_guard();

CREATE TRIGGER forebay_truncate BEFORE TRUNCATE ON public.workflow_queue_projection FOR EACH STATEMENT EXECUTE FUNCTION forebay.job_truncate();

CREATE TRIGGER forebay_waited AFTER INSERT ON public.domain_events FOR EACH ROW WHEN (((new.stream_type <> 'workflow_queue'::text) AND (new.workspace_id IS NOT NULL))) EXECUTE FUNCTION forebay.event_waited();

CREATE TRIGGER workflow_queue_projection_logged AFTER INSERT OR DELETE OR UPDATE ON public.workflow_queue_projection FOR EACH ROW EXECUTE FUNCTION forebay.log_projection();

ALTER TABLE ONLY forebay.api_key
    ADD CONSTRAINT api_key_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.event_binding
    ADD CONSTRAINT event_binding_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.event_binding
    ADD CONSTRAINT event_binding_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.hook
    ADD CONSTRAINT hook_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.hook
    ADD CONSTRAINT hook_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.schedule_tick
    ADD CONSTRAINT schedule_tick_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES forebay.schedule(id) ON DELETE CASCADE;

ALTER TABLE ONLY forebay.schedule
    ADD CONSTRAINT schedule_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.schedule
    ADD CONSTRAINT schedule_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.secret
    ADD CONSTRAINT secret_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.webhook_secret
    ADD CONSTRAINT webhook_secret_webhook_id_fkey FOREIGN KEY (webhook_id) REFERENCES forebay.webhook(id) ON DELETE CASCADE;

ALTER TABLE ONLY forebay.webhook
    ADD CONSTRAINT webhook_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.webhook
    ADD CONSTRAINT webhook_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.workflow_definition_version
    ADD CONSTRAINT workflow_definition_version_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.workflow_definition
    ADD CONSTRAINT workflow_definition_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.workspace
    ADD CONSTRAINT workspace_tier_fkey FOREIGN KEY (tier) REFERENCES forebay.tier(name);
