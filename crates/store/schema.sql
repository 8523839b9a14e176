-- The schema as the migrations make it, dumped by a test: UPDATE_EXPECT=1 regenerates it.
CREATE SCHEMA forebay;

CREATE SCHEMA forebay_r1;

CREATE FUNCTION forebay.add_event_candidate() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
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
END $$;

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
    claimed_via text,
    claim_id uuid,
    lease_until timestamp with time zone,
    claim_lease_s integer,
    retry_from timestamp with time zone,
    CONSTRAINT workflow_queue_job_check CHECK (((claimed_via IS DISTINCT FROM 'sql'::text) OR (claim_id IS NULL))),
    CONSTRAINT workflow_queue_job_check1 CHECK (((pending_since IS NULL) OR ((claimed_via IS NULL) AND (claim_id IS NULL) AND (retry_from IS NULL)))),
    CONSTRAINT workflow_queue_job_claimed_via_check CHECK ((claimed_via = ANY (ARRAY['sql'::text, 'api'::text, 'projector'::text])))
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

CREATE FUNCTION forebay.append_job_fact(p_row public.workflow_queue_projection, p_fact text, p_job forebay.workflow_queue_job) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data,
                                      event_metadata)
    SELECT p_job.workspace_id, p_row.id, 'workflow_queue', p_job.version, 'workflow.queue.' || p_fact,
           CASE WHEN p_job.version > 1
                THEN to_jsonb(p_row) - '{id,event_id,event_type,event_data,stream_id,stream_type,created_at}'::text[]
                WHEN EXISTS (SELECT 1 FROM public.domain_events event
                              WHERE event.id = p_row.event_id
                                AND event.workspace_id IS NOT DISTINCT FROM p_job.event_workspace_id)
                THEN to_jsonb(p_row) - 'event_data'
                ELSE to_jsonb(p_row) END,
           jsonb_strip_nulls(jsonb_build_object('causation_id', p_row.event_id,
               'event_workspace_id', CASE WHEN p_job.workspace_id IS NULL THEN p_job.event_workspace_id END));
END $$;

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
    v_known record;
BEGIN
    -- The numbers are drawn before anything is read, so that later calls count whatever arrives after this point.
    SELECT min(drawn.number), max(drawn.number) INTO v_first, v_last
      FROM (SELECT nextval('forebay.backlog_arrivals') AS number FROM generate_series(1, p_arriving)) drawn;
    SELECT backlog.counted, backlog.arrivals, backlog.counted_at
      INTO v_known
      FROM forebay.backlog
     WHERE backlog.workspace_id = p_workspace;
    IF v_known.counted_at > clock_timestamp() - interval '1 minute'
       AND v_known.counted + v_last - v_known.arrivals <= p_limit THEN
        RETURN p_arriving;
    ELSIF v_known.counted >= p_limit
          AND v_known.counted_at > clock_timestamp() - make_interval(secs => 0.05 + p_limit / 200000.0) THEN
        RETURN 0;
    END IF;
    IF p_keep AND p_limit > 10000 THEN
        -- Counting a long queue is expensive, so only one call at a time does it; concurrent calls use the last count.
        PERFORM 1 FROM forebay.backlog WHERE backlog.workspace_id = p_workspace FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND v_known.counted IS NOT NULL THEN
            RETURN CASE WHEN v_known.counted < p_limit THEN p_arriving ELSE 0 END;
        END IF;
    END IF;
    SELECT count(*) INTO v_counted FROM (
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace AND item.stage = forebay.stage_ready()
        UNION ALL
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace AND item.stage = forebay.stage_delayed()
        UNION ALL
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace AND item.stage = forebay.stage_waits_for_key()
        UNION ALL
        SELECT 1
          FROM forebay.execution_queue item
         WHERE item.shard = v_shard AND item.workspace_id = p_workspace
           AND item.stage = forebay.stage_waits_for_definition()
        LIMIT p_limit) waiting;
    IF p_keep THEN
        -- The count does not include this call's own starts yet. If less than a thousandth of the limit is left, starts
        -- up to that thousandth are still accepted before the next count.
        UPDATE forebay.backlog
           SET counted = v_counted, counted_at = clock_timestamp(),
               arrivals = v_first - 1
                 + CASE WHEN v_counted < p_limit THEN greatest(p_limit / 1000 - (p_limit - v_counted), 0) ELSE 0 END
         WHERE backlog.ctid = (SELECT backlog.ctid
                                 FROM forebay.backlog
                                WHERE backlog.workspace_id = p_workspace
                                FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN least(greatest(p_limit - v_counted, 0), p_arriving);
END $$;

CREATE FUNCTION forebay.binding_of(p_type text, p_workspace uuid) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
    SELECT binding.id FROM forebay.event_binding binding
     WHERE binding.event_type = ANY (forebay.types_of_event(p_type))
       AND (binding.workspace_id IS NULL
            OR binding.workspace_id = p_workspace
               AND EXISTS (SELECT 1
                             FROM forebay.workspace
                            WHERE workspace.id = binding.workspace_id AND workspace.deleted_at IS NULL))
     ORDER BY binding.workspace_id IS NULL, binding.event_type <> p_type, length(binding.event_type) DESC LIMIT 1
$$;

CREATE FUNCTION forebay.built_in_bindings() RETURNS TABLE(id uuid, event_type text, lease_s integer)
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT '00000000-0000-0000-0000-000000000001'::uuid, 'organization.bootstrap.initiated',
           forebay.default_job_lease_s()
$$;

CREATE FUNCTION forebay.caller() RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END
$$;

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

CREATE FUNCTION forebay.create_job(p_event public.domain_events, p_binding uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
END $$;

CREATE FUNCTION forebay.default_job_lease_s() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 900$$;

CREATE FUNCTION forebay.default_priority() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 3$$;

CREATE FUNCTION forebay.enqueue(workspace uuid, definition uuid, input jsonb DEFAULT NULL::jsonb, priority integer DEFAULT 3, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, concurrency_key text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    v_id uuid := forebay.new_id();
    answer record;
BEGIN
    -- The same forms as in `kernel::queue::idempotency`: keys that Forebay derives for triggers, schedules, nodes and
    -- jobs.
    IF idempotency_key ~ '^(trigger/|schedule:|node/|event:)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}/' THEN
        RAISE EXCEPTION 'idempotency key %: keys of this form are reserved for the service; choose another',
            quote_literal(idempotency_key)
            USING ERRCODE = 'check_violation';
    END IF;
    IF priority NOT BETWEEN 1 AND 5 THEN
        RAISE EXCEPTION 'priority % is outside 1 to 5', priority USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO answer FROM forebay.enqueue_many(
        ARRAY[v_id], ARRAY[workspace], ARRAY[definition], ARRAY[input], ARRAY[priority::smallint], ARRAY[run_at],
        ARRAY[concurrency_key], ARRAY[idempotency_key],
        ARRAY[CASE WHEN idempotency_key IS NULL THEN NULL
                   ELSE sha256(convert_to(definition::text || coalesce(input::text, ''), 'UTF8')) END],
        ARRAY['{"type": "sql"}'::jsonb], ARRAY[NULL::text], ARRAY[NULL::uuid], ARRAY[NULL::uuid],
        ARRAY['sql:' || forebay.caller()], forebay.semantics(), forebay.priority_step_ms(), NULL, false);
    IF answer.outcome IN ('accepted', 'existing') THEN
        RETURN answer.execution;
    END IF;
    RAISE EXCEPTION '%', CASE answer.outcome
        WHEN 'conflict' THEN format('idempotency key %L was already used with other content, by execution %s: use '
                                    'another key', idempotency_key, answer.execution)
        WHEN 'draft' THEN format('definition %s is not published: publish a version first', definition)
        WHEN 'backlog_full' THEN format('the backlog limit of workspace %s is reached: try again later', workspace)
        ELSE format('no definition %s in workspace %s', definition, workspace) END
        USING ERRCODE = CASE answer.outcome WHEN 'conflict' THEN 'unique_violation'
                                            WHEN 'backlog_full' THEN 'configuration_limit_exceeded'
                                       ELSE 'no_data_found' END;
END $$;

CREATE FUNCTION forebay.enqueue_many(p_ids uuid[], p_workspaces uuid[], p_definitions uuid[], p_inputs jsonb[], p_priorities smallint[], p_run_at timestamp with time zone[], p_keys text[], p_idempotency text[], p_fingerprints bytea[], p_triggers jsonb[], p_traces text[], p_versions uuid[], p_reruns uuid[], p_actors text[], p_semantics integer, p_step_ms bigint, p_max_backlog integer, p_keep_count boolean, p_lock_timeout_ms integer DEFAULT NULL::integer) RETURNS TABLE(ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
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
    -- All items of one call have the same time, so they are ordered by id in every plan.
    v_now timestamptz := clock_timestamp();
BEGIN
    IF p_lock_timeout_ms IS NOT NULL THEN
        -- Holds until this function returns, because lock_timeout is an option of the function.
        PERFORM set_config('lock_timeout', p_lock_timeout_ms || 'ms', true);
    END IF;
    -- Finds the starts that a full backlog refuses. Only workspaces with a limit pay for this.
    WITH limited AS MATERIALIZED (
        SELECT arriving.workspace_id, allowed.max_backlog, arriving.starts
          FROM (SELECT start.workspace_id, count(*)::int AS starts FROM unnest(p_workspaces) AS start(workspace_id)
                 GROUP BY start.workspace_id) arriving
          JOIN forebay.workspace known ON known.id = arriving.workspace_id
         CROSS JOIN LATERAL (SELECT coalesce(known.max_backlog, p_max_backlog,
                (SELECT tier.max_backlog
                   FROM forebay.tier
                  WHERE tier.name = known.tier AND p_keep_count)) AS max_backlog) allowed
         WHERE allowed.max_backlog IS NOT NULL),
    with_room AS MATERIALIZED (
        SELECT limited.workspace_id,
               forebay.backlog_room(limited.workspace_id, limited.max_backlog, limited.starts, p_keep_count) AS room
          FROM limited ORDER BY limited.workspace_id)
    SELECT coalesce(array_agg(start.id), '{}') INTO v_refused
      FROM (SELECT requested.id, requested.workspace_id,
                   row_number() OVER (PARTITION BY requested.workspace_id ORDER BY requested.ord) AS position
              FROM unnest(p_ids, p_workspaces) WITH ORDINALITY AS requested(id, workspace_id, ord)) start
      JOIN with_room ON with_room.workspace_id = start.workspace_id AND start.position > with_room.room;

    WITH requested AS MATERIALIZED (
        SELECT * FROM unnest(p_ids, p_workspaces, p_definitions, p_inputs, p_run_at, p_priorities, p_keys,
                             p_idempotency, p_fingerprints, p_triggers, p_traces, p_versions, p_reruns, p_actors)
            WITH ORDINALITY AS start(id, workspace_id, definition_id, input, run_at, priority, key, idempotency,
                                     fingerprint, trig, trace, version, rerun_of, actor, ord)),
    -- For each definition: the version to run, and whether a limit or a pause may block its items. A batch mostly has
    -- one definition, which is then looked up once.
    versions AS MATERIALIZED (
        SELECT wanted.workspace_id, wanted.definition_id, wanted.version, pinned.id AS version_id, pinned.timeout_ms,
               living.concurrency IS NOT NULL OR living.status <> 'ACTIVE' AS limited
          FROM (SELECT DISTINCT requested.workspace_id, requested.definition_id, requested.version
                  FROM requested) wanted
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_definition definition
                              WHERE definition.id = wanted.definition_id
                                AND definition.workspace_id = wanted.workspace_id
                                AND definition.deleted_at IS NULL LIMIT 1) living
         CROSS JOIN LATERAL (SELECT 1 FROM forebay.workspace known
                              WHERE known.id = wanted.workspace_id AND known.deleted_at IS NULL
                              LIMIT 1) of_living_workspace
         CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_definition_version version
                              WHERE version.id = coalesce(wanted.version, living.published_version)
                                AND version.workflow_definition_id = living.id LIMIT 1) pinned
         WHERE living.status <> 'DRAFT'),
    startable AS MATERIALIZED (
        SELECT requested.*, versions.version_id, versions.timeout_ms, versions.limited,
               greatest(coalesce(requested.run_at, v_now), v_now) + forebay.max_execution_duration() AS deadline_at
          FROM requested
          JOIN versions ON versions.workspace_id = requested.workspace_id
                       AND versions.definition_id = requested.definition_id
                       AND versions.version IS NOT DISTINCT FROM requested.version
         WHERE NOT requested.id = ANY (v_refused)),
    executions AS (
        INSERT INTO forebay.workflow_execution (id, workspace_id, workflow_definition_id, version_id, semantics,
            trigger, input, priority, concurrency_key, idempotency_key, fingerprint, timeout_ms, created_at,
            deadline_at, trace_context, root, rerun_of, actor)
        SELECT start.id, start.workspace_id, start.definition_id, start.version_id, p_semantics,
               coalesce(start.trig, '{}'), start.input, start.priority, start.key, start.idempotency, start.fingerprint,
               start.timeout_ms, v_now, start.deadline_at, start.trace, start.id, start.rerun_of,
               nullif(start.actor, start.trig ->> 'actor')
          -- Rows are inserted in one order, so that concurrent calls with the same keys do not deadlock. Of two equal
          -- starts in one call the first is accepted.
          FROM startable start ORDER BY start.workspace_id, start.idempotency, start.ord
        ON CONFLICT DO NOTHING
        RETURNING id),
    accepted AS MATERIALIZED (
        SELECT startable.* FROM startable WHERE startable.id = ANY (ARRAY(SELECT executions.id FROM executions))),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'INSERT', array_agg(start.id), array_agg(start.workspace_id), 'PENDING'
          FROM accepted start HAVING count(*) > 0),
    queued AS (
        INSERT INTO forebay.execution_queue (id, workspace_id, workflow_definition_id, priority,
            created_at, available_at, deadline_at, rank, limited, stage, concurrency_key)
        SELECT start.id, start.workspace_id, start.definition_id, start.priority, v_now,
               coalesce(start.run_at, v_now), start.deadline_at,
               (extract(epoch FROM v_now) * 1000)::bigint + (start.priority - 3) * p_step_ms,
               start.key IS NOT NULL OR start.limited, CASE WHEN start.run_at > v_now THEN forebay.stage_delayed()
                    WHEN start.key IS NOT NULL THEN forebay.stage_waits_for_key()
                    WHEN start.limited THEN forebay.stage_waits_for_definition()
                    ELSE forebay.stage_ready() END,
               start.key
          FROM accepted start
        RETURNING id, stage, limited)
    SELECT coalesce(array_agg(queued.id), '{}') AS ids, bool_or(queued.limited) AS limited, min(queued.stage) AS least,
           max(queued.stage) AS most
      INTO v_queued FROM queued;
    v_accepted := v_queued.ids;

    IF v_queued.limited THEN
        SELECT array_agg(item.workspace_id) AS workspaces, array_agg(item.workflow_definition_id) AS definitions,
               array_agg(item.concurrency_key) AS keys
          INTO v_blocked
          FROM (SELECT DISTINCT queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key
                  FROM forebay.execution_queue queued WHERE queued.id = ANY (v_accepted) AND queued.limited) item;
        PERFORM forebay.unblock(v_blocked.workspaces, v_blocked.definitions, v_blocked.keys);
    ELSIF cardinality(v_accepted) = cardinality(p_ids) AND v_queued.least = v_queued.most THEN
        -- Every start was accepted into the same stage, so no result has to be looked up.
        RETURN QUERY SELECT requested.ord, 'accepted', requested.id, requested.workspace_id, v_queued.least
          FROM unnest(p_ids, p_workspaces) WITH ORDINALITY AS requested(id, workspace_id, ord);
        RETURN;
    END IF;

    RETURN QUERY
    SELECT requested.ord,
           CASE WHEN requested.id = ANY (v_accepted) THEN 'accepted'
                WHEN earlier.id IS NOT NULL AND earlier.fingerprint IS NOT DISTINCT FROM requested.fingerprint
                THEN 'existing'
                WHEN earlier.id IS NOT NULL THEN 'conflict'
                WHEN definition.id IS NULL THEN 'not_found'
                WHEN definition.status = 'DRAFT' THEN 'draft'
                WHEN requested.id = ANY (v_refused) THEN 'backlog_full'
                ELSE 'not_found' END,
           CASE WHEN requested.id = ANY (v_accepted) THEN requested.id ELSE earlier.id END, requested.workspace_id,
           (SELECT queued.stage FROM forebay.execution_queue queued WHERE queued.id = requested.id)
      FROM unnest(p_ids, p_workspaces, p_definitions, p_idempotency, p_fingerprints) WITH ORDINALITY
           AS requested(id, workspace_id, definition_id, idempotency, fingerprint, ord)
      -- Written as two index probes, because one condition with OR would read every execution.
      LEFT JOIN LATERAL (
            SELECT same_id.id, same_id.fingerprint FROM forebay.workflow_execution same_id
             WHERE same_id.id = requested.id AND NOT requested.id = ANY (v_accepted)
            UNION ALL
            SELECT same_key.id, same_key.fingerprint FROM forebay.workflow_execution same_key
             WHERE same_key.workspace_id = requested.workspace_id AND same_key.idempotency_key = requested.idempotency
               AND NOT requested.id = ANY (v_accepted)
             LIMIT 1) earlier ON true
      LEFT JOIN forebay.workflow_definition definition
             ON definition.id = requested.definition_id AND definition.workspace_id = requested.workspace_id
           AND definition.deleted_at IS NULL
     ORDER BY requested.ord;
END $$;

CREATE FUNCTION forebay.event_guard() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'domain events cannot be changed: append another event instead'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $$;

CREATE FUNCTION forebay.event_of(p_id uuid, p_workspace uuid, p_stream uuid, p_stream_type text, p_type text) RETURNS SETOF public.domain_events
    LANGUAGE sql STABLE
    AS $$
    SELECT event.* FROM public.domain_events event
     WHERE event.id = p_id AND (p_workspace IS NULL OR event.workspace_id = p_workspace)
     ORDER BY event.workspace_id IS DISTINCT FROM p_workspace,
              (event.stream_id, event.stream_type, event.event_type) IS DISTINCT FROM (p_stream, p_stream_type, p_type),
              event.sequence
     LIMIT 1
$$;

CREATE FUNCTION forebay.fact_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF pg_trigger_depth() < 2
       OR NOT pg_has_role(
           current_user, (SELECT own.relowner FROM pg_catalog.pg_class own WHERE own.oid = TG_RELID), 'MEMBER') THEN
        RAISE EXCEPTION 'the stream type workflow_queue is reserved for the queue: choose another'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'own_stream';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION forebay.fold_new_event() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
END $$;

CREATE FUNCTION forebay.illegal_job_step(p_from text, p_to text, p_retries integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE
        WHEN p_to NOT IN ('pending', 'processing', 'completed', 'failed') THEN NULL
        WHEN p_from = p_to THEN NULL
        WHEN p_from = 'pending' AND p_to = 'processing' THEN NULL
        WHEN p_from = 'processing' THEN NULL
        WHEN p_from = 'failed' AND p_to = 'pending' AND p_retries < forebay.max_job_failures() THEN NULL
        WHEN p_from = 'failed' AND p_to = 'pending'
        THEN 'a job that failed ' || p_retries || ' times cannot be retried'
        WHEN p_from = 'pending' AND p_to = 'completed' THEN 'a pending job cannot be completed: claim it first'
        WHEN p_from = 'pending' THEN 'a pending job cannot be failed: claim it first'
        WHEN p_from = 'completed' THEN 'a completed job is final: it cannot become ' || p_to
        WHEN p_to = 'processing' THEN 'a failed job cannot be claimed: it is pending again when its retry is due'
        ELSE 'a failed job cannot be completed: it is pending again when its retry is due' END
$$;

CREATE FUNCTION forebay.is_bound(p_type text, p_workspace uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT forebay.binding_of(p_type, p_workspace) IS NOT NULL
           OR EXISTS (SELECT 1 FROM forebay.built_in_bindings() built WHERE built.event_type = p_type)
$$;

CREATE FUNCTION forebay.is_owner() RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT pg_has_role(forebay.caller()::name, owned.relowner, 'MEMBER')
      FROM pg_catalog.pg_class owned
     WHERE owned.oid = 'public.domain_events'::regclass
$$;

CREATE FUNCTION forebay.is_transient(p_state text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT left(p_state, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
$$;

CREATE FUNCTION forebay.job_after_step(p_old public.workflow_queue_projection, p_new public.workflow_queue_projection) RETURNS public.workflow_queue_projection
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_given int := p_new.retry_count;
    v_before public.workflow_queue_projection := p_old;
BEGIN
    -- A client's clock may be ahead. That must not extend a lease.
    p_new.updated_at := CASE WHEN p_new.updated_at = p_old.updated_at THEN now()
                             ELSE least(p_new.updated_at, now()) END;
    p_new.retry_count := p_old.retry_count;
    IF p_new.status = 'processing' AND p_old.status = 'pending' THEN
        IF p_new.worker_id IS NULL THEN
            PERFORM forebay.refuse_job_change('a claim must name its worker', 'set worker_id');
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
        -- A retry does not raise retry_count: the failure already did.
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
                PERFORM forebay.refuse_job_change(
                    format('a processing job cannot be claimed: %s holds it', p_old.worker_id));
            END IF;
            p_new.claimed_at := least(p_new.claimed_at, now());
            v_before.claimed_at := p_new.claimed_at;
            v_before.workflow_id := p_new.workflow_id;
            v_before.workflow_run_id := p_new.workflow_run_id;
        END IF;
        IF v_before IS DISTINCT FROM p_new THEN
            PERFORM forebay.refuse_job_change(format('a %s job cannot be changed', p_new.status),
                                       'only updated_at may change, as a heartbeat');
        END IF;
    END IF;
    IF v_given <> p_old.retry_count THEN
        PERFORM forebay.refuse_job_change('retry_count cannot be set', 'the queue counts failures itself');
    END IF;
    RETURN p_new;
END $$;

CREATE FUNCTION forebay.job_changed() RETURNS trigger
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
        DELETE FROM forebay.workflow_queue_job job WHERE job.id = OLD.id RETURNING * INTO v_job;
        v_job.version := coalesce(v_job.version, 0) + 1;
        PERFORM forebay.append_job_fact(OLD, v_fact, v_job);
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        -- A row that another program inserted also belongs to the workspace of its event, as in the change log. Its
        -- event is the first one with the row's event id, stream and type.
        INSERT INTO forebay.workflow_queue_job AS job (id, event_type, version, pending_since, event_id,
                                                       event_workspace_id, workspace_id)
        SELECT NEW.id, NEW.event_type, 1, NEW.created_at, NEW.event_id, event.workspace_id, workspace.id
          FROM (SELECT 1) one
          LEFT JOIN forebay.event_of(NEW.event_id, NULL, NEW.stream_id, NEW.stream_type, NEW.event_type) event ON true
          LEFT JOIN forebay.workspace ON workspace.id = event.workspace_id
        ON CONFLICT (id) DO UPDATE SET version = job.version + 1, event_type = excluded.event_type
        RETURNING * INTO v_job;
    ELSE
        v_job := forebay.update_job_row(OLD, NEW);
    END IF;
    PERFORM forebay.append_job_fact(NEW, v_fact, v_job);
    RETURN NULL;
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
            PERFORM forebay.refuse_job_change('a new job must be pending', 'insert an event, or a pending row');
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF v_mode IS DISTINCT FROM 'retention' THEN
            PERFORM forebay.refuse_job_change('jobs are deleted by retention only', 'set retention.job_days');
        END IF;
        RETURN OLD;
    END IF;

    v_why := forebay.illegal_job_step(OLD.status, NEW.status, OLD.retry_count);
    IF v_why IS NOT NULL THEN
        PERFORM forebay.refuse_job_change(v_why);
    END IF;
    IF (OLD.id, OLD.event_id, OLD.event_type, OLD.event_data, OLD.stream_id, OLD.stream_type, OLD.created_at)
       IS DISTINCT FROM (NEW.id, NEW.event_id, NEW.event_type, NEW.event_data, NEW.stream_id, NEW.stream_type,
                         NEW.created_at) THEN
        PERFORM forebay.refuse_job_change('the event of a job cannot be changed');
    END IF;
    IF OLD.status = 'processing' THEN
        SELECT * INTO v_job FROM forebay.workflow_queue_job job WHERE job.id = OLD.id;
        IF NEW.status <> 'processing' AND v_job.claim_id IS NOT NULL
           AND (v_job.claim_id::text IS DISTINCT FROM current_setting('forebay.claim', true)
                OR v_job.claimed_via = 'projector' AND NOT forebay.is_owner()) THEN
            PERFORM forebay.refuse_job_change(format('job %s is claimed by %s', OLD.id, OLD.worker_id),
                                       'only the holder of its claim can end it');
        END IF;
    END IF;
    RETURN forebay.job_after_step(OLD, NEW);
END $$;

CREATE FUNCTION forebay.job_mode() RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN current_setting('forebay.projection', true) <> '' AND forebay.is_owner()
                THEN current_setting('forebay.projection', true) END
$$;

CREATE FUNCTION forebay.job_truncate() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM forebay.refuse_job_change('jobs are deleted by retention only', 'set retention.job_days');
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.lock_deliveries() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT hashtext('forebay.deliveries') $$;

CREATE FUNCTION forebay.lock_limit_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
END $$;

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
    SELECT 'job', TG_OP, ARRAY[v_row.id], ARRAY[found.workspace_id],
           CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END, CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END
      FROM (SELECT 1) one
      LEFT JOIN LATERAL (
            SELECT coalesce(job.event_workspace_id, job.workspace_id) AS workspace_id
              FROM forebay.workflow_queue_job job
             WHERE job.id = v_row.id
            UNION ALL
            (SELECT fact.workspace_id FROM public.domain_events fact
              WHERE fact.stream_id = v_row.id AND fact.stream_type = 'workflow_queue'
              ORDER BY fact.stream_version DESC
              LIMIT 1)
            UNION ALL
            SELECT event.workspace_id
              FROM forebay.event_of(v_row.event_id, NULL, v_row.stream_id, v_row.stream_type, v_row.event_type) event
            LIMIT 1) found ON true;
    PERFORM forebay.notify_change();
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.max_execution_duration() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT interval '30 days' $$;

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

CREATE FUNCTION forebay.refuse_job_change(p_message text, p_hint text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '%', p_message || coalesce(': ' || p_hint, '')
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_move';
END $$;

CREATE FUNCTION forebay.semantics() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 3$$;

CREATE FUNCTION forebay.set_event_bound() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    NEW.bound := forebay.is_bound(NEW.event_type, NEW.workspace_id);
    RETURN NEW;
END $$;

CREATE FUNCTION forebay.set_fold_error(p_sequence bigint, p_error text) RETURNS void
    LANGUAGE sql
    AS $$
    UPDATE public.domain_events
       SET processing_error = left(p_error, 2000),
           processing_failed_at = CASE WHEN p_error IS NOT NULL THEN clock_timestamp() END
     WHERE sequence = p_sequence
$$;

CREATE FUNCTION forebay.shard_of(p_workspace uuid) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT get_byte(uuid_send(p_workspace), 15) & 63 $$;

CREATE FUNCTION forebay.shards() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 64$$;

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
    SELECT p_type || coalesce(array_agg(array_to_string(parts[1:length], '.') || '.*'), '{}')
      FROM (SELECT string_to_array(p_type, '.') AS parts) split,
           generate_series(1, least(cardinality(parts) - 1, 16)) length
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
        SELECT requested.*, forebay.shard_of(requested.workspace_id)::smallint AS shard,
               (SELECT mark.ready_from
                  FROM forebay.claim_mark mark
                 WHERE mark.workspace_id = requested.workspace_id) AS ready_from
          FROM (SELECT DISTINCT given.workspace_id, given.definition_id, given.key
                  FROM unnest(p_workspaces, p_definitions, p_keys) AS given(workspace_id, definition_id, key)
                 WHERE given.key IS NOT NULL) requested),
    chosen AS MATERIALIZED (
        SELECT next.id, keys.ready_from, definition.concurrency IS NOT NULL OR definition.status <> 'ACTIVE' AS limited
          FROM keys
          JOIN forebay.workflow_definition definition ON definition.id = keys.definition_id
               AND definition.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT waiting.id FROM forebay.execution_queue waiting
             WHERE waiting.shard = keys.shard AND waiting.workspace_id = keys.workspace_id
               AND waiting.workflow_definition_id = keys.definition_id AND waiting.concurrency_key = keys.key
               AND waiting.stage = forebay.stage_waits_for_key()
             ORDER BY waiting.rank, waiting.id
             LIMIT greatest(definition.key_concurrency - (
                SELECT count(*) FROM forebay.execution_queue through
                 WHERE through.stage IN (forebay.stage_ready(), forebay.stage_waits_for_definition(),
                                         forebay.stage_slot())
                   AND through.workspace_id = keys.workspace_id AND through.workflow_definition_id = keys.definition_id
                   AND through.concurrency_key = keys.key), 0)
             FOR UPDATE SKIP LOCKED) next),
    moved AS (
        UPDATE forebay.execution_queue queued
           SET stage = CASE WHEN chosen.limited THEN forebay.stage_waits_for_definition()
                            ELSE forebay.stage_ready() END,
               rank = CASE WHEN chosen.limited THEN queued.rank
                           ELSE greatest(queued.rank, chosen.ready_from[queued.priority]) END
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id, queued.workflow_definition_id, chosen.limited)
    SELECT array_agg(DISTINCT moved.workspace_id) FILTER (WHERE NOT moved.limited) AS ready_in,
           array_agg(moved.workspace_id) FILTER (WHERE moved.limited) AS workspaces,
           array_agg(moved.workflow_definition_id) FILTER (WHERE moved.limited) AS definitions
      INTO v_through_key FROM moved;

    RETURN QUERY
    WITH definitions AS MATERIALIZED (
        SELECT requested.*, forebay.shard_of(requested.workspace_id)::smallint AS shard,
               (SELECT mark.ready_from
                  FROM forebay.claim_mark mark
                 WHERE mark.workspace_id = requested.workspace_id) AS ready_from
          FROM (SELECT given.workspace_id, given.definition_id
                  FROM unnest(p_workspaces, p_definitions, p_keys) AS given(workspace_id, definition_id, key)
                 WHERE given.key IS NULL
                UNION
                SELECT passed.workspace_id, passed.definition_id
                  FROM unnest(v_through_key.workspaces, v_through_key.definitions)
                       AS passed(workspace_id, definition_id)) requested),
    chosen AS MATERIALIZED (
        SELECT next.id, requested.ready_from FROM definitions requested
          JOIN forebay.workflow_definition definition
            ON definition.id = requested.definition_id AND definition.status = 'ACTIVE'
           AND definition.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT waiting.id FROM forebay.execution_queue waiting
             WHERE waiting.shard = requested.shard AND waiting.workspace_id = requested.workspace_id
               AND waiting.workflow_definition_id = requested.definition_id
               AND waiting.stage = forebay.stage_waits_for_definition()
             ORDER BY waiting.rank, waiting.id
             LIMIT CASE WHEN definition.concurrency IS NULL THEN 1000 ELSE greatest(definition.concurrency - (
                SELECT count(*) FROM forebay.execution_queue through
                 WHERE through.limited AND through.stage IN (forebay.stage_ready(), forebay.stage_slot())
                   AND through.workspace_id = requested.workspace_id
                   AND through.workflow_definition_id = requested.definition_id) - (
                -- Items that got their slot before the limit existed are not flagged `limited`, so they are subtracted
                -- too.
                SELECT count(*) FROM forebay.execution_queue holder
                 WHERE holder.shard = requested.shard AND holder.workspace_id = requested.workspace_id
                   AND holder.claim_number IS NOT NULL
                   AND holder.workflow_definition_id = requested.definition_id AND NOT holder.limited), 0) END
             FOR UPDATE SKIP LOCKED) next),
    moved AS (
        UPDATE forebay.execution_queue queued
           SET stage = forebay.stage_ready(), rank = greatest(queued.rank, chosen.ready_from[queued.priority])
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id)
    SELECT moved.workspace_id FROM moved UNION SELECT unnest(v_through_key.ready_in);
END $$;

CREATE FUNCTION forebay.update_job_row(p_old public.workflow_queue_projection, p_new public.workflow_queue_projection) RETURNS forebay.workflow_queue_job
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_job forebay.workflow_queue_job;
BEGIN
    IF p_new.status = 'processing' THEN
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1, pending_since = NULL, due_at = NULL,
               claimed_via = coalesce(job.claimed_via, 'sql'),
               lease_until = CASE WHEN coalesce(job.claimed_via, 'sql') = 'sql'
                                  THEN greatest(p_new.claimed_at, p_new.updated_at) + make_interval(secs => job.lease_s)
                                  ELSE job.lease_until END
         WHERE job.id = p_new.id RETURNING * INTO v_job;
    ELSIF p_new.status = p_old.status THEN
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1
         WHERE job.id = p_new.id
        RETURNING * INTO v_job;
    ELSIF p_new.status = 'pending' THEN
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1, pending_since = now(), claimed_via = NULL, claim_id = NULL,
               lease_until = NULL,
               retry_from = NULL,
               due_at = (SELECT now()
                           FROM forebay.event_binding binding
                          WHERE binding.id = job.binding_id AND binding.workflow_definition_id IS NOT NULL)
         WHERE job.id = p_new.id RETURNING * INTO v_job;
    ELSE
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1, claimed_via = NULL, lease_until = NULL,
               retry_from = CASE WHEN p_new.status = 'failed' AND p_new.retry_count < forebay.max_job_failures()
                                 THEN p_new.failed_at END
         WHERE job.id = p_new.id RETURNING * INTO v_job;
    END IF;
    RETURN v_job;
END $$;

CREATE TABLE forebay.workflow_execution_wait (
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
    recheck boolean DEFAULT false NOT NULL,
    recheck_xid xid8,
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
    read_at timestamp with time zone,
    CONSTRAINT workflow_execution_wait_check CHECK (((holder IS NULL) = (attempt = 0))),
    CONSTRAINT workflow_execution_wait_check1 CHECK (((holder IS NULL) = (opened_at IS NULL))),
    CONSTRAINT workflow_execution_wait_check10 CHECK ((((outcome IS NOT NULL) = (answered_at IS NOT NULL)) AND ((outcome IS NOT NULL) = (answered_by IS NOT NULL)))),
    CONSTRAINT workflow_execution_wait_check11 CHECK (((status <> ALL (ARRAY['OPEN'::text, 'CLAIMED'::text, 'EXPIRED'::text])) OR (outcome IS NULL))),
    CONSTRAINT workflow_execution_wait_check12 CHECK (((status <> ALL (ARRAY['ANSWERED'::text, 'RECEIVED'::text])) OR (outcome IS NOT NULL))),
    CONSTRAINT workflow_execution_wait_check13 CHECK (((NOT (outcome IS DISTINCT FROM 'FAILED'::text)) = (error IS NOT NULL))),
    CONSTRAINT workflow_execution_wait_check14 CHECK (((status <> ALL (ARRAY['OPEN'::text, 'CLAIMED'::text, 'ANSWERED'::text])) OR (read_at IS NULL))),
    CONSTRAINT workflow_execution_wait_check15 CHECK (((status <> 'RECEIVED'::text) OR (read_at IS NOT NULL))),
    CONSTRAINT workflow_execution_wait_check16 CHECK (((NOT recheck) OR (status = 'OPEN'::text))),
    CONSTRAINT workflow_execution_wait_check2 CHECK (((holder IS NOT NULL) OR ((kind = 'WAIT'::text) AND (status = ANY (ARRAY['ANSWERED'::text, 'CLOSED'::text]))))),
    CONSTRAINT workflow_execution_wait_check3 CHECK (((attempt = 0) OR ((kind = 'TASK'::text) = (queue IS NOT NULL)))),
    CONSTRAINT workflow_execution_wait_check4 CHECK (((attempt = 0) OR ((kind = 'TASK'::text) = (lease_s IS NOT NULL)))),
    CONSTRAINT workflow_execution_wait_check5 CHECK ((((event_type IS NULL) = (events_from IS NULL)) AND ((event_type IS NULL) OR (kind = 'WAIT'::text)))),
    CONSTRAINT workflow_execution_wait_check6 CHECK (((status <> 'CLAIMED'::text) OR (kind = 'TASK'::text))),
    CONSTRAINT workflow_execution_wait_check7 CHECK (
CASE status
    WHEN 'CLAIMED'::text THEN ((claim_id IS NOT NULL) AND (lease_until IS NOT NULL))
    ELSE (lease_until IS NULL)
END),
    CONSTRAINT workflow_execution_wait_check8 CHECK (((status <> 'OPEN'::text) OR (claim_id IS NULL))),
    CONSTRAINT workflow_execution_wait_check9 CHECK (((claim_id IS NULL) = (worker IS NULL))),
    CONSTRAINT workflow_execution_wait_kind_check CHECK ((kind = ANY (ARRAY['WAIT'::text, 'TASK'::text]))),
    CONSTRAINT workflow_execution_wait_outcome_check CHECK ((outcome = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text]))),
    CONSTRAINT workflow_execution_wait_status_check CHECK ((status = ANY (ARRAY['OPEN'::text, 'CLAIMED'::text, 'ANSWERED'::text, 'RECEIVED'::text, 'EXPIRED'::text, 'CLOSED'::text])))
)
WITH (fillfactor='70');

CREATE FUNCTION forebay_r1.add_candidate_of_wait(p_wait forebay.workflow_execution_wait) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO forebay.workflow_execution_candidate (workspace_id, execution_id, node, iteration, after_at,
                                                      after_sequence)
    VALUES (p_wait.workspace_id, p_wait.execution_id, p_wait.node, p_wait.iteration, p_wait.events_from, 0);
    PERFORM forebay.notify_change();
END $$;

CREATE FUNCTION forebay_r1.add_deliveries(p_ended uuid[]) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    INSERT INTO forebay.webhook_delivery (id, webhook_id, workspace_id, execution_id, event, due_at)
    SELECT forebay.new_id(), webhook.id, execution.workspace_id, execution.id, execution.status, clock_timestamp()
      FROM unnest(p_ended) AS ended(id)
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.workflow_execution execution
                          WHERE execution.id = ended.id AND execution.parent IS NULL
                          LIMIT 1) execution
      JOIN forebay.webhook
        ON webhook.workspace_id = execution.workspace_id AND webhook.disabled_at IS NULL
       AND execution.status = ANY (webhook.events)
       AND coalesce(webhook.workflow_definition_id, execution.workflow_definition_id) = execution.workflow_definition_id
    ON CONFLICT DO NOTHING
$$;

CREATE FUNCTION forebay_r1.after_end(p_ids uuid[], p_outcomes text[], p_errors jsonb[], p_of_events uuid[], p_of_trees uuid[], p_open boolean, p_actor text) RETURNS TABLE(execution uuid, had_queue_item boolean, freed boolean)
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
    -- p_open: an execution that COMPLETED may have open nodes too. A run that reports its own completion has none.
    IF p_open OR 'COMPLETED' <> ANY (p_outcomes) THEN
        PERFORM forebay_r1.close_waits(p_ids);
        INSERT INTO forebay.execution_outcome (workspace_id, status, execution_id)
        SELECT ended.workspace_id, ended.status, ended.id FROM forebay.workflow_execution ended
         WHERE ended.id = ANY (p_ids) AND ended.depth = 0 AND ended.status IN ('FAILED', 'CANCELED', 'TIMED_OUT')
        ON CONFLICT DO NOTHING;
        WITH open_nodes AS (
            SELECT node.execution_id, node.node, node.iteration,
                   execution.last_seq
                       + row_number() OVER (PARTITION BY node.execution_id ORDER BY node.node, node.iteration) AS seq,
                   -- The descendants have already ended, so their rows show whether a result is unknown.
                   node.status = 'RUNNING' AND (node.once OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution child
                        WHERE child.parent = node.execution_id AND child.parent_node = node.node
                          AND child.parent_iteration = node.iteration AND child.parent_attempt = node.attempt
                          AND forebay_r1.is_unknown(child.id))) AS unknown
              FROM forebay.workflow_execution_node node
              JOIN forebay.workflow_execution execution ON execution.id = node.execution_id
             WHERE node.execution_id = ANY (p_ids) AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')),
        with_result AS (
            SELECT open.execution_id, open.node, open.iteration, open.seq,
                   open.unknown OR (open.iteration = 0 AND (
                       bool_or(open.unknown) OVER (PARTITION BY open.execution_id, open.node) OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution_node item
                        WHERE item.execution_id = open.execution_id AND item.node = open.node AND item.iteration > 0
                          AND item.status = 'UNKNOWN'))) AS unknown
              FROM open_nodes open),
        settled AS (
            UPDATE forebay.workflow_execution_node node
               SET status = CASE WHEN with_result.unknown THEN 'UNKNOWN' ELSE 'CANCELED' END,
                   error = CASE WHEN with_result.unknown THEN jsonb_build_object(
                       'type', 'RESULT_UNKNOWN', 'node', node.node, 'message',
                       'the execution was ended while a node that may be performed at most '
                       'once was running: find out whether it took effect, then rerun with resolve done or repeat')
                       ELSE node.error END,
                   completed_at = clock_timestamp(), next_at = NULL, seq = with_result.seq,
                   duration_ms = (extract(epoch FROM clock_timestamp() - node.started_at) * 1000)::bigint
              FROM with_result
             WHERE node.execution_id = with_result.execution_id AND node.node = with_result.node
               AND node.iteration = with_result.iteration
               AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')
            RETURNING node.execution_id, node.seq)
        UPDATE forebay.workflow_execution execution SET last_seq = progress.seq
          FROM (SELECT settled.execution_id, max(settled.seq) AS seq
                  FROM settled
                 GROUP BY settled.execution_id) progress
         WHERE execution.id = progress.execution_id;
    END IF;

    DELETE FROM forebay.run_request request WHERE request.execution_id = ANY (p_ids);
    WITH deleted AS (
        DELETE FROM forebay.execution_queue queued
         WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                       WHERE ended.outcome IN ('COMPLETED', 'CANCELED')))
           AND queued.status <> 'FAILED'
        RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key, queued.limited,
                  queued.claim_id IS NOT NULL AS freed)
    SELECT coalesce(array_agg(item.id), '{}') AS ids, array_agg(item.freed) AS freed,
           array_agg(item.workspace_id) FILTER (WHERE item.limited) AS workspaces,
           array_agg(item.workflow_definition_id) FILTER (WHERE item.limited) AS definitions,
           array_agg(item.concurrency_key) FILTER (WHERE item.limited) AS keys
      INTO v_left FROM deleted item;
    -- A statement of its own, because preparing it costs every call, and few executions fail.
    IF p_outcomes && ARRAY['FAILED', 'TIMED_OUT'] THEN
        WITH failed AS (
            UPDATE forebay.execution_queue queued
               SET status = 'FAILED', stage = forebay.stage_failed(), claim_number = NULL, owner = NULL,
                   last_error = (SELECT coalesce(ended.error ->> 'message', ended.outcome)
                                   FROM unnest(p_ids, p_outcomes, p_errors) AS ended(id, outcome, error)
                                  WHERE ended.id = queued.id
                                  LIMIT 1)
             WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                           WHERE ended.outcome IN ('FAILED', 'TIMED_OUT')))
               AND queued.status <> 'FAILED'
            RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key,
                      queued.limited, queued.claim_id IS NOT NULL AS freed),
        audited AS (
            INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
            SELECT failed.workspace_id, p_actor, 'queue_item.fail', 'queue_item', failed.id, ended.error
              FROM failed JOIN unnest(p_ids, p_errors) AS ended(id, error) ON ended.id = failed.id)
        SELECT v_left.ids || array_agg(item.id) AS ids, v_left.freed || array_agg(item.freed) AS freed,
               v_left.workspaces || array_agg(item.workspace_id) FILTER (WHERE item.limited) AS workspaces,
               v_left.definitions || array_agg(item.workflow_definition_id) FILTER (WHERE item.limited) AS definitions,
               v_left.keys || array_agg(item.concurrency_key) FILTER (WHERE item.limited) AS keys
          INTO v_left FROM failed item;
    END IF;

    -- For each item, unblock is called once with its key and once with its definition alone.
    IF v_left.workspaces IS NOT NULL THEN
        PERFORM forebay.unblock(v_left.workspaces || v_left.workspaces, v_left.definitions || v_left.definitions,
                                v_left.keys || array_fill(NULL::text, ARRAY[cardinality(v_left.workspaces)]));
    END IF;
    IF p_of_events IS NOT NULL THEN
        PERFORM forebay_r1.end_jobs_of(p_of_events);
    END IF;

    RETURN QUERY
    SELECT ended.id, item.id IS NOT NULL, coalesce(item.freed, false)
      FROM unnest(p_ids) AS ended(id)
      LEFT JOIN unnest(v_left.ids, v_left.freed) AS item(id, freed) ON item.id = ended.id;
END $$;

CREATE FUNCTION forebay_r1.answer_refusal(p_execution uuid, p_node text, p_iteration integer) RETURNS text
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    AS $$
    SELECT CASE WHEN bool_or(node.status NOT IN ('PENDING', 'RUNNING', 'RETRYING')) THEN 'node_settled'
                WHEN bool_or(node.iteration = 0 AND jsonb_typeof(node.input -> 'items') = 'array'
                             AND jsonb_array_length(node.input -> 'items') < p_iteration) THEN 'no_such_item' END
      FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration IN (0, p_iteration)
$$;

CREATE FUNCTION forebay_r1.answer_wait(p_execution uuid, p_node text, p_iteration integer, p_workspace uuid, p_token bytea, p_output jsonb, p_by text, p_open boolean) RETURNS TABLE(result text, engine text, holder uuid, owner uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_wait;
    v_token forebay.workflow_execution_token;
    v_lives boolean;
    v_result text;
    v_refusal text;
    v_workspace uuid;
BEGIN
    v_workspace := (SELECT execution.workspace_id FROM forebay.workflow_execution execution
                     WHERE execution.id = p_execution
                       AND execution.workspace_id = coalesce(p_workspace, execution.workspace_id));
    IF v_workspace IS NULL THEN
        RETURN QUERY SELECT 'missing', NULL::text, NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_lives := forebay_r1.lock_tree(p_execution);
    IF p_token IS NOT NULL THEN
        SELECT * INTO v_token FROM forebay.workflow_execution_token token
         WHERE token.hash = p_token AND token.execution_id = p_execution AND token.node = p_node
           AND token.iteration = p_iteration
         FOR UPDATE;
        v_result := CASE WHEN v_token.hash IS NULL THEN 'missing' WHEN v_token.used_at IS NOT NULL THEN 'token_used'
                       WHEN v_token.expires_at <= clock_timestamp() THEN 'missing' END;
    END IF;
    v_result := coalesce(v_result, CASE WHEN v_lives IS NULL THEN 'missing'
                                        WHEN NOT v_lives THEN 'execution_ended' END);
    v_refusal := forebay_r1.answer_refusal(p_execution, p_node, p_iteration);
    IF v_result IS NULL AND NOT p_open AND v_refusal IS NULL THEN
        INSERT INTO forebay.workflow_execution_wait (execution_id, node, iteration, id, workspace_id, kind, attempt,
            status, outcome, output, answered_by, answered_at)
        VALUES (p_execution, p_node, p_iteration, forebay.new_id(), v_workspace, 'WAIT', 0, 'ANSWERED', 'COMPLETED',
            p_output, p_by, clock_timestamp())
        ON CONFLICT DO NOTHING;
        v_result := CASE WHEN FOUND THEN 'early' END;
    END IF;
    IF v_result IS NULL THEN
        SELECT * INTO v_wait FROM forebay.workflow_execution_wait wait
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration FOR UPDATE;
        v_result := CASE WHEN v_wait.id IS NULL AND NOT p_open AND v_refusal IS NOT NULL THEN v_refusal
                       WHEN v_wait.id IS NULL OR v_wait.kind <> 'WAIT' THEN 'missing'
                       WHEN v_wait.status = 'OPEN' AND v_wait.expires_at <= clock_timestamp() THEN 'expired'
                       WHEN v_wait.status = 'OPEN' THEN coalesce(v_refusal, 'accepted')
                       WHEN v_wait.status IN ('ANSWERED', 'RECEIVED') THEN 'already_answered'
                       WHEN v_wait.status = 'EXPIRED' THEN 'expired' ELSE 'execution_ended' END;
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'ANSWERED', outcome = 'COMPLETED', output = p_output, answered_by = p_by,
               answered_at = clock_timestamp(), recheck = false
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'OPEN' AND v_result = 'accepted';
        UPDATE forebay.workflow_execution_wait wait SET status = 'EXPIRED', recheck = false
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'OPEN' AND v_result = 'expired';
    END IF;
    IF v_result IN ('accepted', 'early') THEN
        UPDATE forebay.workflow_execution_token token
           SET used_at = clock_timestamp()
         WHERE token.hash = p_token AND token.used_at IS NULL;
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        VALUES (v_workspace, p_by, 'wait.answer', 'execution', p_execution,
                jsonb_build_object('node', p_node, 'iteration', p_iteration));
    END IF;
    RETURN QUERY SELECT v_result,
                        CASE WHEN v_result IN ('accepted', 'expired') THEN forebay_r1.wake_run(v_wait.holder) END,
                        v_wait.holder,
                        (SELECT holder.owner FROM forebay.workflow_execution holder WHERE holder.id = v_wait.holder);
END $$;

CREATE FUNCTION forebay_r1.append_events(p_ids uuid[], p_derived boolean[], p_workspaces uuid[], p_streams uuid[], p_stream_types text[], p_expected integer[], p_types text[], p_data jsonb[], p_metadata jsonb[]) RETURNS TABLE(ord bigint, id uuid, added boolean, sequence bigint, version integer, created timestamp with time zone, bound boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '2s'
    AS $$
#variable_conflict use_column
DECLARE
    v_event record;
    v_id uuid;
    v_old public.domain_events;
    v_latest int;
BEGIN
    -- At most one transaction at a time appends to a stream. All calls lock streams in the same order, so they do not
    -- deadlock.
    PERFORM pg_advisory_xact_lock(forebay.lock_stream(), streams.key) FROM (
        SELECT DISTINCT hashtext(concat_ws('/', requested.workspace, requested.stream, requested.type)) AS key
          FROM unnest(p_workspaces, p_streams, p_stream_types) AS requested(workspace, stream, type)
         ORDER BY 1) streams;
    FOR v_event IN
        SELECT *
          FROM unnest(p_ids, p_derived, p_workspaces, p_streams, p_stream_types, p_expected, p_types, p_data,
                      p_metadata)
               WITH ORDINALITY
               AS requested(id, derived, workspace, stream, stream_type, expected, type, data, metadata, ord)
    LOOP
        v_id := CASE WHEN v_event.derived THEN forebay_r1.derived_event_id(v_event.workspace, v_event.id)
                     ELSE v_event.id END;
        SELECT *
          INTO v_old
          FROM public.domain_events event
         WHERE event.id = v_id AND event.workspace_id IS NOT DISTINCT FROM v_event.workspace;
        IF NOT FOUND AND v_event.derived THEN
            -- An older build used the seed itself as the id. If that build crashed and its caller repeats the call, the
            -- event must not be appended twice.
            SELECT * INTO v_old FROM public.domain_events event
             WHERE event.id = v_event.id AND event.workspace_id IS NOT DISTINCT FROM v_event.workspace
               AND event.stream_id = v_event.stream AND event.stream_type = v_event.stream_type
               AND event.event_type = v_event.type
               AND event.event_data = v_event.data;
        END IF;
        IF FOUND THEN
            IF (v_old.stream_id, v_old.stream_type, v_old.event_type, v_old.event_data)
               IS DISTINCT FROM (v_event.stream, v_event.stream_type, v_event.type, v_event.data) THEN
                RAISE EXCEPTION 'event %: this id was already used with other content', v_event.ord - 1
                    USING ERRCODE = 'unique_violation', CONSTRAINT = 'id_conflict';
            END IF;
            RETURN QUERY SELECT v_event.ord, v_old.id, false, v_old.sequence, v_old.stream_version, v_old.created_at,
                                v_old.bound;
            CONTINUE;
        END IF;
        v_latest := forebay_r1.stream_version(v_event.workspace, v_event.stream, v_event.stream_type);
        IF v_event.expected <> v_latest THEN
            RAISE EXCEPTION 'event %: its stream is at version %, not %', v_event.ord - 1, v_latest, v_event.expected
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'version_conflict';
        END IF;
        RETURN QUERY
        INSERT INTO public.domain_events AS event (id, workspace_id, stream_id, stream_type, stream_version, event_type,
                                                   event_data, event_metadata)
        VALUES (v_id, v_event.workspace, v_event.stream, v_event.stream_type, v_latest + 1, v_event.type, v_event.data,
                coalesce(v_event.metadata, '{}'))
        RETURNING v_event.ord, event.id, true, event.sequence, event.stream_version, event.created_at, event.bound;
    END LOOP;
END $$;

CREATE FUNCTION forebay_r1.begin_runs(p_ids uuid[], p_engine text, p_location text, p_process uuid, p_semantics integer) RETURNS TABLE(execution uuid, answer text, workspace uuid, definition uuid, version uuid, epoch bigint, input jsonb, trigger jsonb, created timestamp with time zone, deadline_in_ms bigint, trace text)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_roots uuid[];
    v_with_slot uuid[];
BEGIN
    SELECT array_agg(child.root)
      INTO v_roots
      FROM forebay.workflow_execution child
     WHERE child.id = ANY (p_ids) AND child.parent IS NOT NULL;
    IF v_roots IS NOT NULL THEN
        PERFORM 1 FROM forebay.workflow_execution root WHERE root.id = ANY (v_roots) ORDER BY root.id FOR UPDATE;
    END IF;
    PERFORM 1
      FROM forebay.workflow_execution requested
     WHERE requested.id = ANY (p_ids)
     ORDER BY requested.id
     FOR UPDATE;
    -- The items are locked too: if one were requeued at this moment, its run would begin without a slot.
    SELECT coalesce(array_agg(holder.id), '{}') INTO v_with_slot FROM (
        SELECT queued.id FROM forebay.execution_queue queued
         WHERE queued.id = ANY (p_ids) AND queued.status IN ('CLAIMED', 'DISPATCHED')
         ORDER BY queued.id
         FOR UPDATE) holder;
    IF v_roots IS NOT NULL THEN
        v_with_slot := v_with_slot || ARRAY(
            SELECT child.id FROM forebay.workflow_execution child
             WHERE child.id = ANY (p_ids) AND child.parent IS NOT NULL
               AND (SELECT root.status FROM forebay.workflow_execution root WHERE root.id = child.root) = 'RUNNING');
    END IF;
    WITH begun AS (
        UPDATE forebay.workflow_execution pending
           SET status = 'RUNNING', engine = p_engine, engine_location = p_location, owner = p_process,
               engine_run_id = CASE WHEN p_location IS NOT NULL THEN p_process::text END, owner_epoch = owner_epoch + 1,
               started_at = clock_timestamp(),
               deadline_at = least(pending.deadline_at,
                                   clock_timestamp() + make_interval(secs => pending.timeout_ms / 1000.0))
         WHERE pending.id = ANY (v_with_slot) AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
        RETURNING pending.id, pending.workspace_id)
    INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
    SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING'
      FROM begun
     HAVING count(*) > 0;
    -- The item of a run of ours names its owner, even if the item was already dispatched.
    UPDATE forebay.execution_queue queued
       SET status = 'DISPATCHED', dispatched_at = coalesce(queued.dispatched_at, clock_timestamp()),
           owner = CASE WHEN p_location IS NULL THEN p_process END
      FROM forebay.workflow_execution own
     WHERE queued.id = ANY (v_with_slot)
       AND (queued.status = 'CLAIMED'
            OR (queued.status = 'DISPATCHED' AND queued.owner IS NULL AND p_location IS NULL))
       AND own.id = queued.id AND own.status = 'RUNNING' AND own.owner = p_process;
    RETURN QUERY
    SELECT requested.id,
           CASE WHEN stored.id IS NULL THEN 'missing'
                WHEN stored.status = 'RUNNING' AND stored.owner = p_process THEN 'granted'
                WHEN stored.status = 'PENDING' THEN 'not_yet'
                ELSE 'ended' END,
           stored.workspace_id, stored.workflow_definition_id, stored.version_id, stored.owner_epoch, stored.input,
           stored.trigger, stored.created_at,
           (extract(epoch FROM stored.deadline_at - clock_timestamp()) * 1000)::bigint, stored.trace_context
      FROM unnest(p_ids) AS requested(id) LEFT JOIN forebay.workflow_execution stored ON stored.id = requested.id;
END $$;

CREATE FUNCTION forebay_r1.bindings_of_pending_jobs() RETURNS SETOF uuid
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    WITH RECURSIVE bindings AS (
        (SELECT job.binding_id
           FROM forebay.workflow_queue_job job
          WHERE job.pending_since IS NOT NULL AND job.binding_id IS NOT NULL
          ORDER BY job.binding_id LIMIT 1)
        UNION ALL
        SELECT (SELECT job.binding_id
                  FROM forebay.workflow_queue_job job
                 WHERE job.pending_since IS NOT NULL AND job.binding_id > bindings.binding_id
                 ORDER BY job.binding_id LIMIT 1)
          FROM bindings WHERE bindings.binding_id IS NOT NULL)
    SELECT bindings.binding_id FROM bindings WHERE bindings.binding_id IS NOT NULL
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
    claimed_by uuid,
    claimed_until timestamp with time zone,
    next_wait uuid,
    next_at timestamp with time zone,
    next_sequence bigint,
    more boolean DEFAULT false NOT NULL,
    CONSTRAINT workflow_execution_candidate_check CHECK (((event_id IS NULL) <> (execution_id IS NULL))),
    CONSTRAINT workflow_execution_candidate_check1 CHECK ((((execution_id IS NULL) = (node IS NULL)) AND ((execution_id IS NULL) = (iteration IS NULL)))),
    CONSTRAINT workflow_execution_candidate_check2 CHECK ((((execution_id IS NULL) = (after_at IS NULL)) AND ((execution_id IS NULL) = (after_sequence IS NULL)))),
    CONSTRAINT workflow_execution_candidate_check3 CHECK (((claimed_by IS NULL) = (claimed_until IS NULL)))
);

CREATE FUNCTION forebay_r1.candidate_page(p_candidate forebay.workflow_execution_candidate, p_limit integer) RETURNS TABLE(wait uuid, at timestamp with time zone, sequence bigint, execution uuid, node text, iteration integer, match text, event uuid, fits boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    IF p_candidate.event_id IS NOT NULL THEN
        RETURN QUERY
        SELECT wait.id, NULL::timestamptz, NULL::bigint, wait.execution_id, wait.node, wait.iteration, wait.match,
               event.id, wait.events_from <= event.created_at
          FROM public.domain_events event
         CROSS JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_wait wait
                WHERE wait.workspace_id = p_candidate.workspace_id AND wait.event_type = event.event_type
                  AND wait.status = 'OPEN'
                  AND wait.id > coalesce(p_candidate.after_wait, '00000000-0000-0000-0000-000000000000')
                ORDER BY wait.id LIMIT p_limit) wait
         WHERE event.id = p_candidate.event_id AND event.workspace_id = p_candidate.workspace_id
         ORDER BY wait.id;
    ELSE
        RETURN QUERY
        SELECT NULL::uuid, event.created_at, event.sequence, wait.execution_id, wait.node, wait.iteration, wait.match,
               event.id, true
          FROM forebay.workflow_execution_wait wait
         CROSS JOIN LATERAL (
               SELECT * FROM public.domain_events event
                WHERE event.workspace_id = p_candidate.workspace_id AND event.event_type = wait.event_type
                  AND event.stream_type <> 'workflow_queue'
                  AND (event.created_at, event.sequence) > (p_candidate.after_at, p_candidate.after_sequence)
                ORDER BY event.created_at, event.sequence LIMIT p_limit) event
         WHERE wait.execution_id = p_candidate.execution_id AND wait.node = p_candidate.node
           AND wait.iteration = p_candidate.iteration AND wait.status = 'OPEN'
         ORDER BY event.created_at, event.sequence;
    END IF;
END $$;

CREATE FUNCTION forebay_r1.capacity(p_workspace uuid, p_counted bigint) RETURNS TABLE(max_running integer, paused boolean, running integer, ready integer, waits_for_key integer, waits_for_definition integer, delayed integer, failed integer, oldest_s double precision)
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    SELECT coalesce(workspace.limit_override, tier.max_running) AS max_running, workspace.paused,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.claim_number IS NOT NULL
             LIMIT p_counted) counted) AS running,
           ready.count AS ready, by_key.count AS waits_for_key, by_definition.count AS waits_for_definition,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_delayed()
             LIMIT p_counted) counted) AS delayed,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.workspace_id = workspace.id AND item.stage = forebay.stage_failed()
             LIMIT p_counted) counted) AS failed,
           extract(epoch FROM clock_timestamp() - least(ready.oldest, by_key.oldest, by_definition.oldest))::float8
               AS oldest_s
      FROM forebay.workspace JOIN forebay.tier ON tier.name = workspace.tier
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT first.since FROM generate_series(1, 5) AS level(priority) CROSS JOIN LATERAL (
                SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
                 WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
                   AND item.stage = forebay.stage_ready() AND item.priority = level.priority
                 ORDER BY item.rank, item.id LIMIT p_counted) first
             LIMIT p_counted) counted) ready
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_waits_for_key()
             LIMIT p_counted) counted) by_key
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_waits_for_definition()
             LIMIT p_counted) counted) by_definition
     WHERE workspace.id = p_workspace AND workspace.deleted_at IS NULL
$$;

CREATE FUNCTION forebay_r1.change_rows_for_protocol(p_protocol integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    NULL;
END $$;

CREATE FUNCTION forebay_r1.claim(p_workspaces uuid[], p_wanted integer[], p_claim uuid, p_process uuid, p_engine text, p_semantics integer, p_protocol integer) RETURNS TABLE(kind text, workspace uuid, item uuid, definition uuid, version uuid, attempts integer, in_doubt boolean, definition_deleted boolean, newer boolean, begun boolean, epoch bigint, input jsonb, trigger jsonb, created timestamp with time zone, deadline_in_ms bigint, running integer, max_running integer, more boolean, blocked_again boolean, blocked_definitions uuid[], weight integer, trace text, waited_ms bigint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_shards int[] := ARRAY(SELECT DISTINCT forebay.shard_of(requested.id)
                              FROM unnest(p_workspaces) AS requested(id) ORDER BY 1);
    v_locked int[] := v_shards;
    v_now timestamptz;
    v_number bigint;
    v_items bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'forebay_r1.claim needs the isolation level READ COMMITTED';
    END IF;
    IF cardinality(v_shards) = 1 THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), v_shards[1]);
    ELSE
        v_locked := ARRAY(SELECT shard
                            FROM unnest(v_shards) AS shard
                           WHERE pg_try_advisory_xact_lock(forebay.lock_shard(), shard));
    END IF;
    -- The protocol is read under the lock: raising it takes every shard's lock, so it cannot change during this claim.
    IF p_protocol IS DISTINCT FROM (SELECT number FROM forebay.protocol) THEN
        RAISE EXCEPTION 'a claim with protocol % is refused: this database uses protocol %', p_protocol,
            (SELECT number FROM forebay.protocol)
            USING ERRCODE = 'FB001', HINT = 'Replace this process by one of the release that the others run.';
    END IF;
    -- All items of one claim get the same claimed_at; the list of holders orders by (claimed_at, id).
    v_now := clock_timestamp();
    v_number := nextval('forebay.claim_number');
    -- The number must be above the mark. If the sequence was reset, it may not be, so the mark is reset too.
    UPDATE forebay.claim_mark
       SET slots_after = 0, slots_known = '{}'
     WHERE workspace_id = ANY (p_workspaces) AND forebay.shard_of(workspace_id) = ANY (v_shards)
       AND slots_after >= v_number;
    RETURN QUERY
    WITH workspaces AS MATERIALIZED (
        SELECT workspace.id, workspace.shard, workspace.weight, slots.running, slots.definitions, slots.keys,
               coalesce(mark.ready_from, '{0,0,0,0,0}') AS ready_from,
               coalesce(workspace.limit_override, tier.max_running) AS max_running,
               workspace.paused OR workspace.deleted_at IS NOT NULL AS closed,
               CASE WHEN workspace.paused OR workspace.deleted_at IS NOT NULL THEN 0
                    ELSE least(request.wanted,
                               coalesce(workspace.limit_override, tier.max_running) - slots.running) END AS room
          FROM (SELECT requested.id, max(requested.wanted) AS wanted
                  FROM unnest(p_workspaces, p_wanted) AS requested(id, wanted)
                 GROUP BY requested.id) request
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.workspace WHERE workspace.id = request.id LIMIT 1) workspace
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = workspace.tier LIMIT 1) tier
          LEFT JOIN LATERAL (SELECT * FROM forebay.claim_mark WHERE claim_mark.workspace_id = request.id LIMIT 1) mark
            ON true
         CROSS JOIN LATERAL (
            SELECT count(*)::int AS running, array_agg(holder.definition_id) AS definitions,
                   array_agg(holder.definition_id || holder.key) FILTER (WHERE holder.key IS NOT NULL) AS keys
              FROM forebay_r1.holders(workspace.shard, workspace.id, mark.slots_after, mark.slots_known) holder) slots
         WHERE workspace.shard = ANY (v_locked)),
    candidates AS MATERIALIZED (
        SELECT next.* FROM workspaces CROSS JOIN LATERAL (
            SELECT first.* FROM (VALUES (1), (2), (3), (4), (5)) AS level(priority) CROSS JOIN LATERAL (
                SELECT ready.id, ready.workspace_id, ready.workflow_definition_id AS definition_id,
                       ready.concurrency_key AS key, ready.priority, ready.rank,
                       least(ready.rank, forebay_r1.own_rank(ready.created_at, ready.priority)) AS turn,
                       ready.limited, ready.attempt_count, ready.in_doubt,
                       greatest(ready.created_at, ready.available_at) AS since
                  FROM forebay.execution_queue ready
                 WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id
                   AND ready.stage = forebay.stage_ready() AND ready.priority = level.priority
                   AND ready.rank >= workspaces.ready_from[level.priority]
                 ORDER BY ready.rank, ready.id LIMIT greatest(workspaces.room, 0) FOR UPDATE SKIP LOCKED) first
             ORDER BY first.turn, first.id LIMIT greatest(workspaces.room, 0)) next),
    -- A missing definition must not block the head of its workspace's queue: its item is claimed, and the caller fails
    -- it. A paused definition has the limit 0.
    with_key_room AS (
        SELECT candidate.*, definition.id IS NULL OR definition.deleted_at IS NOT NULL AS definition_deleted,
               CASE WHEN definition.deleted_at IS NOT NULL THEN NULL
                    WHEN definition.status <> 'ACTIVE' THEN 0
                    ELSE definition.concurrency END AS definition_limit,
               candidate.key IS NULL
               OR row_number() OVER (PARTITION BY candidate.definition_id, candidate.key
                                     ORDER BY candidate.turn, candidate.id)
                  + (SELECT coalesce(cardinality(array_positions(workspaces.keys,
                                                                 candidate.definition_id || candidate.key)), 0)
                       FROM workspaces WHERE workspaces.id = candidate.workspace_id)
                  <= coalesce(definition.key_concurrency, 1) AS key_has_room
          FROM candidates candidate
          LEFT JOIN forebay.workflow_definition definition ON definition.id = candidate.definition_id),
    -- Items whose key has no room do not use up their definition's limit.
    with_grant AS (
        SELECT candidate.*, key_has_room AND (
               definition_limit IS NULL
               OR row_number() OVER (PARTITION BY definition_id, key_has_room ORDER BY turn, id)
                  + (SELECT coalesce(cardinality(array_positions(workspaces.definitions, candidate.definition_id)), 0)
                       FROM workspaces WHERE workspaces.id = candidate.workspace_id)
                  <= definition_limit) AS granted
          FROM with_key_room candidate),
    with_execution AS MATERIALIZED (
        SELECT candidate.*, execution.id IS NOT NULL AS begins, execution.version_id, execution.owner_epoch,
               execution.input, execution.trigger, execution.accepted_at, execution.deadline_at, execution.trace_context
          FROM with_grant candidate LEFT JOIN LATERAL (
            SELECT pending.id, pending.version_id, pending.owner_epoch, pending.input, pending.trigger,
                   pending.created_at AS accepted_at, pending.trace_context,
                   least(pending.deadline_at, v_now + make_interval(secs => pending.timeout_ms / 1000.0)) AS deadline_at
              FROM forebay.workflow_execution pending
             WHERE pending.id = candidate.id AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
               AND p_engine IS NOT NULL AND candidate.granted AND NOT candidate.definition_deleted
               FOR UPDATE SKIP LOCKED) execution ON true),
    per_workspace AS MATERIALIZED (
        SELECT with_execution.workspace_id, count(*) AS candidate_count,
               ARRAY[min(rank) FILTER (WHERE priority = 1), min(rank) FILTER (WHERE priority = 2),
                     min(rank) FILTER (WHERE priority = 3), min(rank) FILTER (WHERE priority = 4),
                     min(rank) FILTER (WHERE priority = 5)] AS first_ranks,
               count(*) FILTER (WHERE granted)::int AS granted,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room) AS all_blocked_definitions,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room
                                                         AND NOT limited) AS newly_blocked_definitions,
               bool_or(NOT granted AND (limited OR NOT key_has_room)) AS any_moved_back
          FROM with_execution GROUP BY with_execution.workspace_id),
    claimed AS (
        UPDATE forebay.execution_queue queued
           SET stage = forebay.stage_slot(), claim_number = v_number, claim_id = p_claim, claimed_by = p_process,
               claimed_at = v_now,
               status = CASE WHEN queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins)) THEN 'DISPATCHED'
                             ELSE 'CLAIMED' END,
               dispatched_at = CASE WHEN queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins))
                                    THEN v_now END,
               owner = CASE WHEN queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins)) THEN p_process END,
               limited = queued.limited OR queued.workflow_definition_id = ANY (
                   ARRAY(SELECT DISTINCT definition_id FROM with_execution WHERE definition_limit IS NOT NULL))
         WHERE queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE granted)) AND queued.status = 'PENDING'),
    moved_back AS (
        UPDATE forebay.execution_queue queued
           SET limited = true, rank = least(queued.rank, forebay_r1.own_rank(queued.created_at, queued.priority)),
               stage = CASE WHEN queued.id = ANY (ARRAY(SELECT with_execution.id
                                                          FROM with_execution
                                                         WHERE NOT granted AND key_has_room))
                            THEN forebay.stage_waits_for_definition() ELSE forebay.stage_waits_for_key() END
         WHERE queued.id = ANY (ARRAY(SELECT with_execution.id
                                        FROM with_execution
                                       WHERE NOT granted AND (with_execution.limited OR NOT key_has_room)))
           AND queued.status = 'PENDING'),
    begun AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'RUNNING', engine = p_engine, owner = p_process, owner_epoch = owner_epoch + 1,
               started_at = v_now,
               deadline_at = least(execution.deadline_at, v_now + make_interval(secs => execution.timeout_ms / 1000.0))
         WHERE execution.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins)) AND execution.status = 'PENDING'
        RETURNING execution.id, execution.workspace_id),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING'
          FROM begun HAVING count(*) > 0)
    SELECT 'item', candidate.workspace_id, candidate.id, candidate.definition_id,
           coalesce(candidate.version_id, not_begun.version_id), candidate.attempt_count, candidate.in_doubt,
           candidate.definition_deleted, coalesce(not_begun.semantics > p_semantics, false), candidate.begins,
           candidate.owner_epoch + 1, candidate.input, candidate.trigger, candidate.accepted_at,
           (extract(epoch FROM candidate.deadline_at - v_now) * 1000)::bigint,
           NULL::int, NULL::int, NULL::boolean, NULL::boolean, NULL::uuid[], NULL::int,
           coalesce(candidate.trace_context, not_begun.trace_context),
           (extract(epoch FROM v_now - candidate.since) * 1000)::bigint
      FROM with_execution candidate LEFT JOIN LATERAL (
            SELECT execution.version_id, execution.semantics, execution.trace_context
              FROM forebay.workflow_execution execution
             WHERE execution.id = candidate.id AND NOT candidate.begins LIMIT 1) not_begun ON true
     WHERE candidate.granted
    UNION ALL
    SELECT 'workspace', workspaces.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           workspaces.running + coalesce(per_workspace.granted, 0), workspaces.max_running,
           -- Counted in this statement's snapshot, in which the candidates are still ready.
           NOT workspaces.closed AND (SELECT count(*) FROM (
               SELECT 1 FROM (VALUES (1), (2), (3), (4), (5)) AS level(priority) CROSS JOIN LATERAL (
                    SELECT 1 FROM forebay.execution_queue ready
                     WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id
                       AND ready.stage = forebay.stage_ready() AND ready.priority = level.priority
                       AND ready.rank >= coalesce(per_workspace.first_ranks[level.priority],
                                                  workspaces.ready_from[level.priority])
                     -- Ordered, so that no plan reads all ready items first.
                     ORDER BY ready.rank, ready.id LIMIT 1 + coalesce(per_workspace.candidate_count, 0)) of_priority
                LIMIT 1 + coalesce(per_workspace.candidate_count, 0)) seen)
               > coalesce(per_workspace.candidate_count, 0),
           coalesce(per_workspace.any_moved_back, false),
           -- If this claim granted any item, only definitions that block items for the first time are returned; later
           -- claims block the other items again one by one. If it granted none, all blocking definitions are returned,
           -- because a long blocked backlog may be at the head of the queue.
           CASE WHEN per_workspace.granted > 0 THEN per_workspace.newly_blocked_definitions
                ELSE per_workspace.all_blocked_definitions END,
           workspaces.weight::int, NULL, NULL
      FROM workspaces LEFT JOIN per_workspace ON per_workspace.workspace_id = workspaces.id
    UNION ALL
    SELECT 'busy', requested.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM unnest(p_workspaces) AS requested(id)
     WHERE NOT forebay.shard_of(requested.id) = ANY (v_locked);
    -- On average once per claims_per_mark() items of a workspace: a random item of this claim says whose mark moves.
    GET DIAGNOSTICS v_items = ROW_COUNT;
    v_items := v_items - cardinality(p_workspaces);
    IF random() * forebay_r1.claims_per_mark() < v_items THEN
        PERFORM forebay_r1.move_mark(mine.workspace_id, v_number, v_now)
           FROM (SELECT claimed.workspace_id FROM unnest(p_workspaces) AS requested(id)
                   JOIN forebay.execution_queue claimed
                     ON claimed.shard = forebay.shard_of(requested.id) AND claimed.workspace_id = requested.id
                    AND claimed.claim_number = v_number AND claimed.claim_id = p_claim
                  ORDER BY random() LIMIT 1) mine;
    END IF;
END $$;

CREATE FUNCTION forebay_r1.claim_candidates(p_after uuid, p_limit integer, p_lease_s double precision) RETURNS TABLE(claim uuid, workspace uuid, execution uuid, node text, iteration integer, match text, event uuid, candidate bigint, wait uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_claim CONSTANT uuid := gen_random_uuid();
    v_workspace uuid := forebay_r1.next_workspace_to_evaluate(p_after);
    v_left int := p_limit;
    v_seen int;
    v_candidate forebay.workflow_execution_candidate;
    v_pair record;
BEGIN
    IF v_workspace IS NULL THEN
        RETURN;
    END IF;
    FOR v_candidate IN
        SELECT * FROM forebay.workflow_execution_candidate candidate
         WHERE candidate.workspace_id = v_workspace
           AND (candidate.claimed_until IS NULL OR candidate.claimed_until <= clock_timestamp())
         ORDER BY candidate.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        v_seen := 0;
        FOR v_pair IN SELECT * FROM forebay_r1.candidate_page(v_candidate, v_left) LOOP
            v_seen := v_seen + 1;
            v_candidate.next_wait := v_pair.wait;
            v_candidate.next_at := v_pair.at;
            v_candidate.next_sequence := v_pair.sequence;
            IF v_pair.fits THEN
                RETURN QUERY SELECT v_claim, v_workspace, v_pair.execution, v_pair.node, v_pair.iteration, v_pair.match,
                                    v_pair.event, v_candidate.id, v_pair.wait;
            END IF;
        END LOOP;
        IF v_seen = 0 THEN
            DELETE FROM forebay.workflow_execution_candidate candidate WHERE candidate.id = v_candidate.id;
        ELSE
            UPDATE forebay.workflow_execution_candidate candidate
               SET claimed_by = v_claim, claimed_until = clock_timestamp() + make_interval(secs => p_lease_s),
                   next_wait = v_candidate.next_wait, next_at = v_candidate.next_at,
                   next_sequence = v_candidate.next_sequence, more = v_seen >= v_left
             WHERE candidate.id = v_candidate.id;
        END IF;
        v_left := v_left - v_seen;
        EXIT WHEN v_left <= 0;
    END LOOP;
    RETURN QUERY SELECT v_claim, v_workspace, NULL::uuid, NULL::text, 0, NULL::text, NULL::uuid, NULL::bigint,
                        NULL::uuid;
END $$;

CREATE FUNCTION forebay_r1.claim_deliveries(p_claim uuid, p_after uuid, p_each integer, p_limit integer, p_steps integer, p_lease_s double precision) RETURNS TABLE(delivery uuid, last_workspace uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_workspace uuid := p_after;
    v_sending int;
    v_left int := p_limit;
    v_claimed int;
BEGIN
    FOR step IN 1..p_steps LOOP
        EXIT WHEN v_left <= 0;
        v_workspace := (SELECT delivery.workspace_id
                      FROM forebay.webhook_delivery delivery
                     WHERE delivery.due_at IS NOT NULL AND delivery.workspace_id > v_workspace
                     ORDER BY delivery.workspace_id LIMIT 1);
        EXIT WHEN v_workspace IS NULL;
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(forebay.lock_deliveries(), hashtext(v_workspace::text));
        v_sending := (SELECT count(*) FROM forebay.webhook_delivery delivery
                       WHERE delivery.workspace_id = v_workspace AND delivery.status = 'SENDING'
                         AND delivery.due_at > clock_timestamp());
        RETURN QUERY
        UPDATE forebay.webhook_delivery delivery
           SET status = 'SENDING', claim_id = p_claim, attempts = delivery.attempts + 1,
               due_at = clock_timestamp() + make_interval(secs => p_lease_s)
         WHERE delivery.id = ANY (ARRAY(
               SELECT delivery.id FROM forebay.webhook_delivery delivery
                WHERE delivery.workspace_id = v_workspace AND delivery.due_at <= clock_timestamp()
                ORDER BY delivery.due_at, delivery.id
                LIMIT greatest(least(p_each, greatest((v_left + v_sending) / 4, 1)) - v_sending, 0)
                FOR UPDATE SKIP LOCKED))
           AND delivery.status IN ('PENDING', 'SENDING')
        RETURNING delivery.id, NULL::uuid;
        GET DIAGNOSTICS v_claimed = ROW_COUNT;
        v_left := v_left - v_claimed;
    END LOOP;
    RETURN QUERY SELECT NULL::uuid, v_workspace;
END $$;

CREATE FUNCTION forebay_r1.claim_job_for_projector(p_id uuid, p_worker text, p_claim uuid, p_workflow_id text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE public.workflow_queue_projection projection
       SET status = 'processing', worker_id = p_worker, claimed_at = now(), workflow_id = p_workflow_id,
           workflow_run_id = CASE WHEN p_workflow_id IS NOT NULL THEN p_claim::text END
     WHERE projection.id = p_id AND projection.status = 'pending';
    UPDATE forebay.workflow_queue_job job
       SET claimed_via = 'projector', claim_id = p_claim, lease_until = NULL
     WHERE job.id = p_id AND job.claimed_via = 'sql';
END $$;

CREATE FUNCTION forebay_r1.claim_jobs(p_workspace uuid, p_types text[], p_id uuid, p_worker text, p_lease_s integer, p_limit integer) RETURNS TABLE(job public.workflow_queue_projection, workspace_id uuid, claim uuid, lease_until timestamp with time zone)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    -- More candidates than requested, because other workers may have locked the first ones.
    v_candidates uuid[] := CASE
        WHEN p_id IS NOT NULL THEN ARRAY[p_id]
        WHEN p_types IS NOT NULL
        THEN ARRAY(SELECT forebay_r1.pending_jobs_of_types(p_workspace, p_types, p_limit * 4 + 100)) END;
    v_bytes bigint := 0;
BEGIN
    FOR v_job IN
        SELECT projection.id
          FROM forebay.workflow_queue_job job
          JOIN public.workflow_queue_projection projection ON projection.id = job.id
         WHERE v_candidates IS NULL AND job.pending_since IS NOT NULL AND projection.status = 'pending'
           AND (p_workspace IS NULL OR job.workspace_id = p_workspace)
         ORDER BY job.pending_since, job.id LIMIT p_limit FOR UPDATE OF projection SKIP LOCKED
    LOOP
        v_candidates := v_candidates || v_job.id;
    END LOOP;
    FOR v_job IN
        SELECT projection.id, octet_length(projection.event_data::text) AS bytes
          FROM forebay.workflow_queue_job job JOIN public.workflow_queue_projection projection ON projection.id = job.id
         WHERE job.id = ANY (v_candidates) AND job.pending_since IS NOT NULL AND projection.status = 'pending'
           AND (p_workspace IS NULL OR job.workspace_id = p_workspace)
           AND (p_types IS NULL OR projection.event_type = ANY (p_types)
                OR EXISTS (SELECT 1
                             FROM unnest(p_types) AS requested(type)
                            WHERE requested.type LIKE '%.*'
                              AND starts_with(projection.event_type, left(requested.type, -1))))
         ORDER BY job.pending_since, job.id LIMIT p_limit FOR UPDATE OF projection SKIP LOCKED
    LOOP
        EXIT WHEN v_bytes > 1048576;
        v_bytes := v_bytes + coalesce(v_job.bytes, 0);
        UPDATE public.workflow_queue_projection projection
           SET status = 'processing', worker_id = p_worker, claimed_at = now()
         WHERE projection.id = v_job.id AND projection.status = 'pending';
        UPDATE forebay.workflow_queue_job job
           SET claimed_via = 'api', claim_id = gen_random_uuid(), claim_lease_s = coalesce(p_lease_s, job.lease_s),
               lease_until = clock_timestamp() + make_interval(secs => coalesce(p_lease_s, job.lease_s))
         WHERE job.id = v_job.id AND job.claimed_via = 'sql';
        RETURN QUERY
        SELECT projection, job.workspace_id, job.claim_id, job.lease_until
          FROM public.workflow_queue_projection projection
          JOIN forebay.workflow_queue_job job ON job.id = projection.id
         WHERE projection.id = v_job.id;
    END LOOP;
END $$;

CREATE FUNCTION forebay_r1.claim_tasks(p_queues text[], p_workspace uuid, p_after uuid, p_worker text, p_limit integer, p_lease_s double precision) RETURNS TABLE(task uuid, claim uuid, last_workspace uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_workspace uuid := coalesce(p_workspace, p_after, v_nil);
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
    -- How many tasks this round over the workspaces found. If a round began in the middle, a second round starts with
    -- the first workspace.
    v_round int := 1;
BEGIN
    FOR step IN 1..1000 LOOP
        EXIT WHEN v_left <= 0;
        v_next := CASE WHEN p_workspace IS NOT NULL THEN p_workspace ELSE (
            SELECT next.id FROM unnest(p_queues) AS queue(name)
             CROSS JOIN LATERAL (SELECT wait.workspace_id AS id FROM forebay.workflow_execution_wait wait
                                  WHERE wait.status = 'OPEN' AND wait.kind = 'TASK' AND wait.queue = queue.name
                                    AND wait.workspace_id > v_workspace
                                  ORDER BY wait.workspace_id LIMIT 1) next
             ORDER BY next.id LIMIT 1) END;
        IF v_next IS NULL THEN
            EXIT WHEN v_workspace = v_nil OR v_round = 0;
            v_workspace := v_nil;
            v_round := 0;
            CONTINUE;
        END IF;
        v_workspace := v_next;
        v_want := least(v_each, v_left);
        v_at := '-infinity';
        v_id := v_nil;
        -- The oldest tasks of all these queues; tasks that another claim has locked are skipped.
        WHILE v_want > 0 LOOP
            -- A few at a time, because claiming stops once the inputs exceed 1 MiB.
            v_step := least(v_want, 8);
            SELECT array_agg(oldest.id),
                   (array_agg(oldest.opened_at ORDER BY oldest.opened_at DESC, oldest.id DESC))[1],
                   (array_agg(oldest.id ORDER BY oldest.opened_at DESC, oldest.id DESC))[1]
              INTO v_ids, v_at, v_id
              FROM (SELECT next.id, next.opened_at
                      FROM (SELECT DISTINCT name FROM unnest(p_queues) AS queue(name)) queue
                     CROSS JOIN LATERAL (
                           SELECT wait.id, wait.opened_at FROM forebay.workflow_execution_wait wait
                            WHERE wait.status = 'OPEN' AND wait.kind = 'TASK' AND wait.queue = queue.name
                              AND wait.workspace_id = v_workspace
                              AND (wait.opened_at, wait.id) > (v_at, v_id)
                              AND (wait.expires_at IS NULL OR wait.expires_at > clock_timestamp())
                            ORDER BY wait.opened_at, wait.id LIMIT v_step) next
                     ORDER BY next.opened_at, next.id LIMIT v_step) oldest;
            EXIT WHEN v_ids IS NULL;
            RETURN QUERY
            UPDATE forebay.workflow_execution_wait wait
               SET status = 'CLAIMED', claim_id = gen_random_uuid(), worker = p_worker,
                   claim_lease_s = coalesce(p_lease_s, wait.lease_s),
                   lease_until = clock_timestamp() + make_interval(secs => coalesce(p_lease_s, wait.lease_s)),
                   deliveries = wait.deliveries + 1, progress = NULL
             WHERE wait.id = ANY (ARRAY(
                   SELECT wait.id
                     FROM forebay.workflow_execution_wait wait
                    WHERE wait.id = ANY (v_ids) AND wait.status = 'OPEN'
                    FOR UPDATE SKIP LOCKED))
               AND wait.status = 'OPEN'
            RETURNING wait.id, wait.claim_id, NULL::uuid;
            GET DIAGNOSTICS v_taken = ROW_COUNT;
            v_served := CASE WHEN v_taken > 0 THEN v_workspace ELSE v_served END;
            v_want := v_want - v_taken;
            v_left := v_left - v_taken;
            v_round := v_round + v_taken;
            v_bytes := v_bytes + coalesce((
                SELECT sum(octet_length(wait.input::text)) FROM forebay.workflow_execution_wait wait
                 WHERE wait.id = ANY (v_ids) AND wait.status = 'CLAIMED' AND wait.worker = p_worker), 0);
            IF v_bytes > 1048576 THEN
                v_want := 0;
                v_left := 0;
            END IF;
        END LOOP;
        EXIT WHEN p_workspace IS NOT NULL;
    END LOOP;
    RETURN QUERY SELECT NULL::uuid, NULL::uuid, v_served;
END $$;

CREATE FUNCTION forebay_r1.claims_per_mark() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 250$$;

CREATE FUNCTION forebay_r1.close_waits(p_ids uuid[]) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    UPDATE forebay.workflow_execution_wait wait SET status = 'CLOSED', lease_until = NULL, recheck = false
     WHERE wait.execution_id = ANY (p_ids) AND wait.status IN ('OPEN', 'CLAIMED')
$$;

CREATE FUNCTION forebay_r1.collect_iterations(p_holder uuid, p_owner uuid, p_epoch bigint, p_execution uuid, p_node text, p_collect boolean, p_most bigint, p_return text) RETURNS TABLE(held boolean, large boolean, output jsonb)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_output jsonb;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution holder
     WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
       AND holder.status = 'RUNNING'
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, false, NULL::jsonb;
        RETURN;
    END IF;
    IF (SELECT sum(octet_length(CASE node.status WHEN 'COMPLETED' THEN node.output::text
                                                 WHEN 'FAILED' THEN node.error::text END))
          FROM forebay.workflow_execution_node node
         WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration > 0) > p_most THEN
        RETURN QUERY SELECT true, true, NULL::jsonb;
        RETURN;
    END IF;
    SELECT jsonb_build_object('count', count(*), 'failed', count(*) FILTER (WHERE node.status = 'FAILED'), 'items',
               coalesce(jsonb_agg(CASE WHEN node.status = 'COMPLETED' THEN node.output END ORDER BY node.iteration),
                        '[]'))
           || CASE WHEN p_collect THEN jsonb_build_object('errors', coalesce(
                  jsonb_agg(jsonb_build_object('index', node.iteration - 1, 'error', node.error)
                            ORDER BY node.iteration)
                      FILTER (WHERE node.status = 'FAILED'), '[]')) ELSE '{}' END
      INTO v_output
      FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration > 0;
    UPDATE forebay.workflow_execution_node node SET output = v_output
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration = 0 AND node.status = 'RUNNING';
    RETURN QUERY SELECT true, false, CASE p_return WHEN 'all' THEN v_output WHEN 'some' THEN v_output - 'items' END;
END $$;

CREATE FUNCTION forebay_r1.complete(p_ids uuid[], p_outcomes text[], p_outputs jsonb[], p_errors jsonb[], p_claims uuid[], p_from text, p_actor text) RETURNS TABLE(execution uuid, applied boolean, had_queue_item boolean, workspace uuid, freed boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_ended uuid[];
    v_over record;
BEGIN
    PERFORM 1
      FROM forebay.workflow_execution requested
     WHERE requested.id = ANY (p_ids)
     ORDER BY requested.id
     FOR UPDATE;
    WITH requested AS (
        SELECT *
          FROM unnest(p_ids, p_outcomes, p_outputs, p_errors, p_claims)
               AS requested(id, outcome, output, error, claim)),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = requested.outcome, output = requested.output, error = requested.error,
               completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint,
               owner = NULL, owner_epoch = owner_epoch + 1
          FROM requested
         WHERE execution.id = requested.id AND execution.status IN ('PENDING', 'RUNNING')
           AND execution.status = coalesce(p_from, execution.status)
           AND (requested.claim IS NULL OR EXISTS (
                SELECT 1 FROM forebay.execution_queue queued
                 WHERE queued.id = requested.id AND queued.status = 'CLAIMED' AND queued.claim_id = requested.claim))
        RETURNING execution.id, execution.workspace_id, execution.status),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status
          FROM ended
         GROUP BY ended.status)
    SELECT coalesce(array_agg(ended.id), '{}') INTO v_ended FROM ended;

    SELECT array_agg(execution.id) AS ids, array_agg(execution.status) AS outcomes,
           array_agg(execution.error) AS errors, array_agg(execution.workspace_id) AS workspaces,
           array_agg(execution.id) FILTER (WHERE execution.trigger ->> 'type' = 'event') AS of_events,
           array_agg(execution.id) FILTER (WHERE execution.parent IS NOT NULL OR execution.descendants > 0) AS of_trees
      INTO v_over
      FROM (SELECT DISTINCT each.id FROM unnest(p_ids) AS each(id)) requested
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.workflow_execution stored
                          WHERE stored.id = requested.id
                          LIMIT 1) execution
     WHERE execution.status NOT IN ('PENDING', 'RUNNING');

    IF v_ended <> '{}' AND EXISTS (
        SELECT 1
          FROM forebay.webhook live
         WHERE live.workspace_id = ANY (v_over.workspaces) AND live.disabled_at IS NULL) THEN
        PERFORM forebay_r1.add_deliveries(v_ended);
    END IF;

    RETURN QUERY
    SELECT terminal.id, terminal.id = ANY (v_ended), followed.had_queue_item, terminal.workspace_id, followed.freed
      FROM unnest(v_over.ids, v_over.workspaces) AS terminal(id, workspace_id)
      JOIN forebay_r1.after_end(v_over.ids, v_over.outcomes, v_over.errors, v_over.of_events, v_over.of_trees, true,
                                p_actor) AS followed
        ON followed.execution = terminal.id
    UNION ALL
    SELECT missing.id, NULL, true, missing.workspace_id, missing.freed
      FROM forebay_r1.fail_items_of_missing(p_ids, p_claims, p_actor) AS missing;
END $$;

CREATE FUNCTION forebay_r1.create_child(p_holder uuid, p_owner uuid, p_epoch bigint, p_id uuid, p_parent uuid, p_node text, p_iteration integer, p_attempt integer, p_definition uuid, p_version uuid, p_input jsonb, p_trigger jsonb, p_trace text, p_timeout_ms bigint, p_engine text, p_begins boolean, p_semantics integer, p_max_depth integer, p_max_descendants integer) RETURNS TABLE(answer text, made boolean, execution uuid, workspace uuid, definition uuid, version uuid, input jsonb, trigger jsonb, created timestamp with time zone, deadline_in_ms bigint, inherits boolean, trace text, canceling boolean, status text, output jsonb, error jsonb, unknown boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_root record;
    v_parent record;
    v_child record;
    v_now timestamptz;
    v_made boolean := false;
BEGIN
    SELECT root.id, root.descendants INTO v_root FROM forebay.workflow_execution root
     WHERE root.id = (SELECT parent.root FROM forebay.workflow_execution parent WHERE parent.id = p_parent) FOR UPDATE;
    SELECT parent.*
      INTO v_parent
      FROM forebay.workflow_execution parent
     WHERE parent.id = p_parent AND parent.status = 'RUNNING'
     FOR UPDATE;
    IF v_parent.id IS NULL OR NOT p_holder IN (v_parent.id, v_root.id) OR NOT EXISTS (
        SELECT 1 FROM forebay.workflow_execution holder
         WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
           AND holder.status = 'RUNNING') THEN
        RETURN QUERY SELECT 'lost', false, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid, NULL::jsonb, NULL::jsonb,
            NULL::timestamptz, NULL::bigint, false, NULL::text, false, NULL::text, NULL::jsonb, NULL::jsonb, false;
        RETURN;
    END IF;

    SELECT child.* INTO v_child FROM forebay.workflow_execution child
     WHERE child.parent = p_parent AND child.parent_node = p_node AND child.parent_iteration = p_iteration
       AND child.parent_attempt = p_attempt;
    IF v_child.id IS NULL THEN
        IF p_definition IS NULL OR v_parent.depth >= p_max_depth OR v_root.descendants >= p_max_descendants THEN
            RETURN QUERY SELECT CASE WHEN p_definition IS NULL THEN 'missing'
                                     WHEN v_parent.depth >= p_max_depth THEN 'too_deep'
                                     ELSE 'too_many' END,
                false, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid, NULL::jsonb, NULL::jsonb,
                NULL::timestamptz, NULL::bigint, false, NULL::text, false, NULL::text, NULL::jsonb, NULL::jsonb, false;
            RETURN;
        END IF;
        v_now := clock_timestamp();
        v_made := true;
        INSERT INTO forebay.workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics,
            engine, trigger, input, priority, timeout_ms, created_at, started_at, deadline_at, parent, root,
            parent_node, parent_iteration, parent_attempt, depth, trace_context)
        SELECT p_id, v_parent.workspace_id, p_definition, p_version,
               CASE WHEN p_begins THEN 'RUNNING' ELSE 'PENDING' END, p_semantics, CASE WHEN p_begins THEN p_engine END,
               p_trigger, p_input, v_parent.priority, p_timeout_ms, v_now, CASE WHEN p_begins THEN v_now END,
               least(v_parent.deadline_at, v_now + make_interval(secs => p_timeout_ms / 1000.0)),
               v_parent.id, v_root.id, p_node, p_iteration, p_attempt, v_parent.depth + 1, p_trace;
        UPDATE forebay.workflow_execution root SET descendants = root.descendants + 1 WHERE root.id = v_root.id;
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        VALUES ('execution', 'INSERT', ARRAY[p_id], ARRAY[v_parent.workspace_id],
                CASE WHEN p_begins THEN 'RUNNING' ELSE 'PENDING' END);
        SELECT child.* INTO v_child FROM forebay.workflow_execution child WHERE child.id = p_id;
    END IF;
    RETURN QUERY
    SELECT CASE WHEN v_child.status IN ('PENDING', 'RUNNING') THEN 'running' ELSE 'ended' END, v_made, v_child.id,
           v_child.workspace_id, v_child.workflow_definition_id, v_child.version_id, v_child.input, v_child.trigger,
           v_child.created_at, (extract(epoch FROM v_child.deadline_at - clock_timestamp()) * 1000)::bigint,
           v_child.deadline_at >= v_parent.deadline_at, v_child.trace_context, v_child.cancel_requested_at IS NOT NULL,
           v_child.status, v_child.output, v_child.error,
           v_child.status IN ('FAILED', 'CANCELED', 'TIMED_OUT') AND forebay_r1.is_unknown(v_child.id);
END $$;

CREATE FUNCTION forebay_r1.derived_event_id(p_workspace uuid, p_seed uuid) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
    SELECT overlay(overlay(substr(encode(
               sha256(own.secret || coalesce(uuid_send(p_workspace), '') || uuid_send(p_seed)), 'hex'), 1, 32)
               PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid
      FROM forebay.event_secret own
$$;

CREATE FUNCTION forebay_r1.differing_jobs() RETURNS TABLE(id uuid, how text)
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(folded.id, projection.id),
           CASE WHEN projection.id IS NULL THEN 'missing' WHEN folded.id IS NULL THEN 'extra' ELSE 'changed' END
      FROM forebay_r1.folded_jobs() folded
      FULL JOIN public.workflow_queue_projection projection ON projection.id = folded.id
     WHERE projection.id IS NULL OR folded.id IS NULL OR folded IS DISTINCT FROM projection
$$;

CREATE FUNCTION forebay_r1.drop_unused_releases(p_own integer, p_unused_s double precision) RETURNS SETOF integer
    LANGUAGE plpgsql
    AS $$
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
END $$;

CREATE FUNCTION forebay_r1.due_jobs(p_limit integer) RETURNS TABLE(id uuid, retries integer, event_id uuid, event_type text, event_data jsonb, event_metadata jsonb, stream_id uuid, stream_type text, stream_version integer, created timestamp with time zone, workspace uuid, definition uuid, definition_workspace uuid, filter text, input jsonb, workflow_id text)
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    WITH bindings AS MATERIALIZED (
        SELECT binding.*, definition.workspace_id AS definition_workspace
          FROM forebay_r1.bindings_of_pending_jobs() AS pending(id)
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.event_binding binding WHERE binding.id = pending.id LIMIT 1) binding
         CROSS JOIN LATERAL (SELECT definition.workspace_id
                               FROM forebay.workflow_definition definition
                              WHERE definition.id = binding.workflow_definition_id
                              LIMIT 1) definition
         CROSS JOIN LATERAL (SELECT job.due_at FROM forebay.workflow_queue_job job
                              WHERE job.binding_id = binding.id AND job.pending_since IS NOT NULL
                                AND job.due_at <= now()
                              ORDER BY job.due_at LIMIT 1) first
         WHERE binding.full_until IS NULL OR binding.full_until <= now()
         ORDER BY first.due_at, binding.id LIMIT p_limit),
    turns AS MATERIALIZED (
        SELECT job.id, job.workspace_id, job.event_workspace_id, job.due_at, bindings.id AS binding_id
          FROM bindings
         CROSS JOIN LATERAL (
            SELECT job.*, row_number() OVER (ORDER BY job.due_at, job.id) AS turn
              FROM (SELECT job.id, job.workspace_id, job.event_workspace_id, job.due_at
                      FROM forebay.workflow_queue_job job
                     WHERE job.binding_id = bindings.id AND job.pending_since IS NOT NULL AND job.due_at <= now()
                     ORDER BY job.due_at, job.id LIMIT p_limit) job) job
         ORDER BY job.turn, job.due_at, job.id LIMIT p_limit)
    SELECT projection.id, projection.retry_count, projection.event_id, projection.event_type, projection.event_data,
           coalesce(event.event_metadata, '{}'), projection.stream_id, projection.stream_type, event.stream_version,
           coalesce(event.created_at, projection.created_at), turns.workspace_id, bindings.workflow_definition_id,
           bindings.definition_workspace, bindings.filter, bindings.input, bindings.workflow_id
      FROM turns
      JOIN bindings ON bindings.id = turns.binding_id
      JOIN public.workflow_queue_projection projection ON projection.id = turns.id AND projection.status = 'pending'
      LEFT JOIN public.domain_events event ON event.id = projection.event_id
           AND event.workspace_id IS NOT DISTINCT FROM turns.event_workspace_id
     ORDER BY turns.due_at, turns.id
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
        SELECT child.id
          FROM forebay.workflow_execution child
         WHERE child.parent = ANY (p_ids) AND child.completed_at IS NULL
        UNION ALL
        -- OFFSET 0: one index probe each, never a join that reads every open execution.
        SELECT child.id FROM descendants CROSS JOIN LATERAL (
            SELECT below.id FROM forebay.workflow_execution below
             WHERE below.parent = descendants.id AND below.completed_at IS NULL OFFSET 0) child),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'CANCELED', completed_at = clock_timestamp(), owner = NULL, owner_epoch = owner_epoch + 1,
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint
         WHERE execution.id = ANY (ARRAY(SELECT descendants.id FROM descendants))
           AND execution.status IN ('PENDING', 'RUNNING')
        RETURNING execution.id, execution.workspace_id, execution.status, execution.depth),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status
          FROM ended
         GROUP BY ended.status)
    SELECT array_agg(ended.id) AS ids, array_agg(ended.depth) AS depths INTO v_ended FROM ended;
    -- Deepest first: if a child's result is unknown, so is the result of the node that made the child.
    FOR v_depth IN
        SELECT DISTINCT level.depth FROM unnest(v_ended.depths) AS level(depth) ORDER BY level.depth DESC
    LOOP
        PERFORM 1 FROM forebay_r1.after_end(
            ARRAY(SELECT ended.id
                    FROM unnest(v_ended.ids, v_ended.depths) AS ended(id, depth)
                   WHERE ended.depth = v_depth),
            ARRAY(SELECT 'CANCELED' FROM unnest(v_ended.depths) AS ended(depth) WHERE ended.depth = v_depth),
            ARRAY(SELECT NULL::jsonb FROM unnest(v_ended.depths) AS ended(depth) WHERE ended.depth = v_depth), NULL,
            NULL, true, p_actor);
    END LOOP;
END $$;

CREATE FUNCTION forebay_r1.end_job(p_id uuid, p_workspace uuid, p_claim uuid, p_result jsonb, p_error text, p_stack text) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_state text := forebay_r1.job_claim_state(p_id, p_workspace, p_claim);
BEGIN
    IF v_state = 'held' THEN
        PERFORM forebay_r1.finish_job(p_id, p_result, p_error, p_stack, true);
        RETURN 'ended';
    END IF;
    -- The same end, repeated.
    RETURN CASE WHEN v_state = CASE WHEN p_error IS NULL THEN 'completed' ELSE 'failed' END THEN 'ended'
                WHEN v_state IS NOT NULL THEN 'lost' END;
END $$;

CREATE FUNCTION forebay_r1.end_job_of(p_job uuid, p_execution uuid, p_status text, p_output jsonb, p_error jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN forebay_r1.finish_job(
        p_job, coalesce(p_output, '{}'),
        CASE WHEN p_status IS NULL THEN 'the row of execution ' || p_execution || ' is missing: somebody deleted it'
             WHEN p_status = 'COMPLETED' THEN NULL
             WHEN p_status = 'CANCELED' THEN 'the execution was canceled'
             ELSE coalesce(p_error ->> 'message', 'the execution ended ' || p_status) END,
        CASE WHEN p_status <> 'COMPLETED' THEN forebay_r1.failure_chain(p_execution, p_error) END,
        coalesce(p_status <> 'CANCELED', false));
EXCEPTION
    WHEN OTHERS THEN
        IF forebay.is_transient(SQLSTATE) THEN
            RAISE;
        END IF;
        RAISE WARNING 'failed to end the job of execution %: %', p_execution, SQLERRM;
        RETURN NULL;
END $$;

CREATE FUNCTION forebay_r1.end_jobs_of(p_executions uuid[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_execution record;
    v_ended boolean;
    v_done int := 0;
BEGIN
    FOR v_execution IN
        SELECT execution.id, execution.status, execution.output, execution.error, job.id AS job
          FROM unnest(p_executions) AS ended(id) JOIN forebay.workflow_execution execution ON execution.id = ended.id
          LEFT JOIN forebay.workflow_queue_job job ON job.claim_id = execution.id AND job.claimed_via = 'projector'
         WHERE execution.completed_at IS NOT NULL ORDER BY execution.id
    LOOP
        PERFORM 1
          FROM public.workflow_queue_projection projection
         WHERE projection.id = v_execution.job
         FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND AND EXISTS (SELECT 1
                                              FROM public.workflow_queue_projection projection
                                             WHERE projection.id = v_execution.job);
        v_ended := v_execution.job IS NOT NULL
            AND forebay_r1.end_job_of(v_execution.job, v_execution.id, v_execution.status, v_execution.output,
                                      v_execution.error);
        IF v_ended THEN
            v_done := v_done + 1;
        ELSIF NOT v_ended THEN
            RAISE WARNING 'execution % was started by an event, but its job is not processing', v_execution.id;
        END IF;
    END LOOP;
    RETURN v_done;
END $$;

CREATE FUNCTION forebay_r1.end_task(p_task uuid, p_workspace uuid, p_claim uuid, p_outcome text, p_output jsonb, p_error jsonb) RETURNS TABLE(result text, engine text, holder uuid, owner uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_wait;
    v_lives boolean;
    v_result text;
BEGIN
    SELECT * INTO v_wait FROM forebay.workflow_execution_wait wait
     WHERE wait.id = p_task AND wait.kind = 'TASK' AND wait.workspace_id = coalesce(p_workspace, wait.workspace_id);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', NULL::text, NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_lives := forebay_r1.lock_tree(v_wait.execution_id);
    SELECT * INTO v_wait FROM forebay.workflow_execution_wait wait WHERE wait.id = p_task FOR UPDATE;
    v_result := CASE WHEN v_wait.id IS NULL THEN 'missing'
                   WHEN v_wait.claim_id = p_claim AND v_wait.status = 'CLAIMED' AND v_lives
                        AND coalesce(v_wait.expires_at > clock_timestamp(), true) THEN 'accepted'
                   WHEN v_wait.claim_id = p_claim AND v_wait.status IN ('ANSWERED', 'RECEIVED')
                        THEN CASE WHEN v_wait.outcome = p_outcome THEN 'repeated' ELSE 'other_result' END
                   WHEN v_wait.ended_claim = p_claim THEN 'repeated'
                   ELSE 'lost' END;
    UPDATE forebay.workflow_execution_wait wait
       SET status = 'ANSWERED', outcome = p_outcome, output = p_output, error = p_error, answered_by = wait.worker,
           answered_at = clock_timestamp(), lease_until = NULL
     WHERE wait.id = p_task AND wait.status = 'CLAIMED' AND wait.claim_id = p_claim AND v_result = 'accepted';
    RETURN QUERY SELECT v_result, CASE WHEN v_result = 'accepted' THEN forebay_r1.wake_run(v_wait.holder) END,
                        v_wait.holder,
                        (SELECT holder.owner FROM forebay.workflow_execution holder WHERE holder.id = v_wait.holder);
END $$;

CREATE FUNCTION forebay_r1.expire_waits(p_limit integer, p_most integer, p_error jsonb) RETURNS TABLE(kind text, engine text, holder uuid, owner uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_holders uuid[];
BEGIN
    RETURN QUERY
    UPDATE forebay.workflow_execution_wait wait
       SET status = 'OPEN', lost = wait.lost + 1, claim_id = NULL, worker = NULL, claim_lease_s = NULL,
           lease_until = NULL
     WHERE wait.id = ANY (ARRAY(
           SELECT wait.id FROM forebay.workflow_execution_wait wait
            WHERE wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp() AND wait.lost < p_most - 1
            ORDER BY wait.lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED))
       AND wait.status = 'CLAIMED'
    RETURNING 'lost', NULL::text, NULL::uuid, NULL::uuid;

    v_holders := ARRAY(
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.id = ANY (ARRAY(
               SELECT wait.holder FROM forebay.workflow_execution_wait wait
                WHERE wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp() AND wait.lost >= p_most - 1
                ORDER BY wait.lease_until LIMIT p_limit) || ARRAY(
               SELECT wait.holder FROM forebay.workflow_execution_wait wait
                WHERE wait.status IN ('OPEN', 'CLAIMED') AND wait.expires_at <= clock_timestamp()
                ORDER BY wait.expires_at LIMIT p_limit))
         ORDER BY execution.id FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    WITH expired AS (
        UPDATE forebay.workflow_execution_wait wait SET status = 'EXPIRED', lease_until = NULL, recheck = false
         WHERE wait.holder = ANY (v_holders) AND wait.status IN ('OPEN', 'CLAIMED')
           AND wait.expires_at <= clock_timestamp()
        RETURNING 'expired' AS kind, wait.holder)
    SELECT expired.kind, forebay_r1.wake_run(expired.holder), expired.holder, holder.owner
      FROM expired
      JOIN forebay.workflow_execution holder ON holder.id = expired.holder;
    RETURN QUERY
    WITH failed AS (
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'ANSWERED', outcome = 'FAILED', error = p_error, answered_by = 'forebay',
               answered_at = clock_timestamp(), lost = wait.lost + 1, claim_id = NULL, worker = NULL, lease_until = NULL
         WHERE wait.holder = ANY (v_holders) AND wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp()
           AND wait.lost >= p_most - 1
        RETURNING 'failed' AS kind, wait.holder)
    SELECT failed.kind, forebay_r1.wake_run(failed.holder), failed.holder, holder.owner
      FROM failed
      JOIN forebay.workflow_execution holder ON holder.id = failed.holder;
END $$;

CREATE FUNCTION forebay_r1.fail_items_of_missing(p_ids uuid[], p_claims uuid[], p_actor text) RETURNS TABLE(id uuid, workspace_id uuid, freed boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_reason constant text := 'the execution row is missing: somebody deleted it';
    v_failed record;
BEGIN
    WITH missing AS (
        UPDATE forebay.execution_queue item
           SET status = 'FAILED', stage = forebay.stage_failed(), claim_number = NULL, owner = NULL,
               last_error = v_reason
          FROM unnest(p_ids, p_claims) AS requested(id, claim)
         WHERE item.id = requested.id AND item.status <> 'FAILED'
           AND (requested.claim IS NULL OR (item.status = 'CLAIMED' AND item.claim_id = requested.claim))
           AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution execution WHERE execution.id = requested.id)
        RETURNING item.id, item.workspace_id, item.workflow_definition_id, item.concurrency_key, item.limited,
                  item.claim_id IS NOT NULL AS freed),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT item.workspace_id, p_actor, 'queue_item.fail', 'queue_item', item.id,
               jsonb_build_object('type', 'EXECUTION_GONE', 'message', v_reason)
          FROM missing item)
    SELECT coalesce(array_agg(item.id), '{}') AS ids, array_agg(item.workspace_id) AS of,
           array_agg(item.freed) AS freed, array_agg(item.workspace_id) FILTER (WHERE item.limited) AS workspaces,
           array_agg(item.workflow_definition_id) FILTER (WHERE item.limited) AS definitions,
           array_agg(item.concurrency_key) FILTER (WHERE item.limited) AS keys
      INTO v_failed FROM missing item;
    IF v_failed.ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM forebay_r1.end_descendants(v_failed.ids, p_actor);
    PERFORM forebay_r1.close_waits(v_failed.ids);
    DELETE FROM forebay.run_request request WHERE request.execution_id = ANY (v_failed.ids);
    IF v_failed.workspaces IS NOT NULL THEN
        PERFORM forebay.unblock(v_failed.workspaces || v_failed.workspaces,
                                v_failed.definitions || v_failed.definitions,
                                v_failed.keys || array_fill(NULL::text, ARRAY[cardinality(v_failed.workspaces)]));
    END IF;
    PERFORM forebay_r1.fail_jobs_of_missing(v_failed.ids);
    RETURN QUERY SELECT * FROM unnest(v_failed.ids, v_failed.of, v_failed.freed);
END $$;

CREATE FUNCTION forebay_r1.fail_jobs_of_missing(p_executions uuid[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_job record;
    v_done int := 0;
BEGIN
    FOR v_job IN
        SELECT job.id, job.claim_id FROM unnest(p_executions) AS missing(id)
          JOIN forebay.workflow_queue_job job ON job.claim_id = missing.id AND job.claimed_via = 'projector'
          JOIN public.workflow_queue_projection projection ON projection.id = job.id
         ORDER BY job.id
         FOR UPDATE OF projection SKIP LOCKED
    LOOP
        IF forebay_r1.end_job_of(v_job.id, v_job.claim_id, NULL, NULL, NULL) THEN
            v_done := v_done + 1;
        END IF;
    END LOOP;
    RETURN v_done;
END $$;

CREATE FUNCTION forebay_r1.failure_chain(p_execution uuid, p_error jsonb) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT left(concat_ws(E'\n',
        (p_error ->> 'type') || coalesce(' at ' || (p_error ->> 'node'), '') || ': ' || (p_error ->> 'message'),
        (SELECT string_agg(
            concat_ws(E'\n',
                '  node ' || node.node || ', attempt ' || node.attempt || ': '
                    || concat_ws(': ', node.error ->> 'type', node.error ->> 'message'),
                (SELECT string_agg('    attempt ' || (past ->> 'attempt') || ' at ' || (past ->> 'at') || ': '
                                   || concat_ws(': ', past -> 'error' ->> 'type', past -> 'error' ->> 'message'),
                                   E'\n')
                   FROM jsonb_array_elements(
                        CASE jsonb_typeof(node.earlier) WHEN 'array' THEN node.earlier ELSE '[]' END) past)),
            E'\n' ORDER BY node.seq)
           FROM forebay.workflow_execution_node node
          WHERE node.execution_id = p_execution AND node.error IS NOT NULL)), 20000)
$$;

CREATE FUNCTION forebay_r1.finish_candidates(p_claim uuid, p_candidate bigint, p_wait uuid, p_event uuid) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    UPDATE forebay.workflow_execution_candidate candidate SET claimed_by = NULL, claimed_until = NULL, more = false
     WHERE candidate.claimed_by = p_claim AND candidate.id > p_candidate;
    -- The waits of an event are read in order, and so are the events of a wait.
    UPDATE forebay.workflow_execution_candidate candidate
       SET next_wait = p_wait, more = true,
           next_at = (SELECT event.created_at
                        FROM public.domain_events event
                       WHERE event.id = p_event AND event.workspace_id = candidate.workspace_id
                         AND candidate.event_id IS NULL),
           next_sequence = (SELECT event.sequence
                              FROM public.domain_events event
                             WHERE event.id = p_event AND event.workspace_id = candidate.workspace_id
                               AND candidate.event_id IS NULL)
     WHERE candidate.claimed_by = p_claim AND candidate.id = p_candidate;
    DELETE FROM forebay.workflow_execution_candidate candidate
     WHERE candidate.claimed_by = p_claim AND NOT candidate.more;
    UPDATE forebay.workflow_execution_candidate candidate
       SET after_wait = candidate.next_wait, after_at = candidate.next_at, after_sequence = candidate.next_sequence,
           claimed_by = NULL, claimed_until = NULL, more = false
     WHERE candidate.claimed_by = p_claim AND candidate.more;
$$;

CREATE FUNCTION forebay_r1.finish_job(p_id uuid, p_result jsonb, p_error text, p_stack text, p_retry boolean) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_ended boolean;
BEGIN
    PERFORM set_config('forebay.claim',
                       (SELECT job.claim_id::text FROM forebay.workflow_queue_job job WHERE job.id = p_id), true);
    UPDATE public.workflow_queue_projection projection
       SET status = CASE WHEN p_error IS NULL THEN 'completed' ELSE 'failed' END,
           result = CASE WHEN p_error IS NULL THEN p_result END, error_message = p_error, error_stack = p_stack
     WHERE projection.id = p_id AND projection.status = 'processing';
    v_ended := FOUND;
    PERFORM set_config('forebay.claim', '', true);
    IF NOT p_retry THEN
        UPDATE forebay.workflow_queue_job job SET retry_from = NULL WHERE job.id = p_id;
    END IF;
    RETURN v_ended;
END $$;

CREATE FUNCTION forebay_r1.fold_event(p_sequence bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_event public.domain_events;
BEGIN
    SELECT *
      INTO v_event
      FROM public.domain_events event
     WHERE event.sequence = p_sequence AND event.processing_error IS NOT NULL
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    BEGIN
        IF forebay.is_bound(v_event.event_type, v_event.workspace_id) THEN
            PERFORM forebay.create_job(v_event, forebay.binding_of(v_event.event_type, v_event.workspace_id));
        END IF;
    EXCEPTION
        WHEN OTHERS THEN
            IF forebay.is_transient(SQLSTATE) THEN
                RAISE;
            END IF;
            PERFORM forebay.set_fold_error(p_sequence, SQLSTATE || ': ' || SQLERRM);
            RETURN false;
    END;
    PERFORM forebay.set_fold_error(p_sequence, NULL);
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
    -- This condition must equal that of the index domain_events_to_fold.
    FOR v_event IN
        SELECT event.sequence FROM public.domain_events event
         WHERE left(event.processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
         ORDER BY event.processing_failed_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        BEGIN
            PERFORM forebay_r1.fold_event(v_event.sequence);
            v_done := v_done + 1;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT forebay.is_transient(SQLSTATE) THEN
                    RAISE;
                END IF;
                PERFORM forebay.set_fold_error(v_event.sequence, SQLSTATE || ': ' || SQLERRM);
                EXIT;
        END;
    END LOOP;
    RETURN v_done;
END $$;

CREATE FUNCTION forebay_r1.folded_jobs() RETURNS SETOF public.workflow_queue_projection
    LANGUAGE sql STABLE
    AS $$
    SELECT (jsonb_populate_record(NULL::public.workflow_queue_projection,
        coalesce(jsonb_build_object('event_data', event.event_data), '{}') || first.event_data || last.event_data)).*
      FROM (SELECT DISTINCT ON (fact.stream_id) fact.stream_id, fact.event_type, fact.event_data
              FROM public.domain_events fact
             WHERE fact.stream_type = 'workflow_queue' ORDER BY fact.stream_id, fact.stream_version DESC) last
      JOIN public.domain_events first ON first.stream_id = last.stream_id AND first.stream_type = 'workflow_queue'
           AND first.stream_version = 1
      LEFT JOIN LATERAL forebay.event_of((first.event_data ->> 'event_id')::uuid,
           coalesce((first.event_metadata ->> 'event_workspace_id')::uuid, first.workspace_id),
           (first.event_data ->> 'stream_id')::uuid, first.event_data ->> 'stream_type',
           first.event_data ->> 'event_type') event ON true
     WHERE last.event_type <> 'workflow.queue.retired'
$$;

CREATE FUNCTION forebay_r1.heartbeat(p_process uuid, p_dispatches boolean, p_has_room boolean, p_waiting integer, p_lease_s double precision, p_dead_after_s double precision) RETURNS TABLE(kind text, shard smallint, id uuid, runs bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
BEGIN
    UPDATE forebay.process
       SET heartbeat_at = clock_timestamp(), dispatching = p_dispatches, has_room = p_has_room, waiting_runs = p_waiting
     WHERE process.id = p_process AND process.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'declared_dead', NULL::smallint, p_process, NULL::bigint;
        RETURN;
    END IF;
    IF p_dispatches THEN
        RETURN QUERY
        WITH fair AS MATERIALIZED (
            SELECT ceil(forebay.shards()::numeric / greatest(1, (
                SELECT count(*) FROM forebay.process
                 WHERE process.id <> p_process AND process.dispatching AND process.ended_at IS NULL
                   AND process.heartbeat_at > clock_timestamp() - make_interval(secs => p_lease_s)
                ) + 1))::int AS share),
        mine AS MATERIALIZED (
            SELECT lease.shard, count(*) OVER () AS held, row_number() OVER (ORDER BY lease.shard) AS place
              FROM forebay.shard_owner lease WHERE lease.owner = p_process),
        free AS MATERIALIZED (
            SELECT lease.shard FROM forebay.shard_owner lease
             WHERE lease.until <= clock_timestamp() AND lease.owner IS DISTINCT FROM p_process
             ORDER BY random() LIMIT greatest((SELECT share FROM fair) - (SELECT count(*) FROM mine), 0)
             FOR UPDATE SKIP LOCKED),
        wanted AS (
            SELECT mine.shard, mine.held <= fair.share OR mine.place > 1 AS keep FROM mine, fair
            UNION ALL SELECT free.shard, true FROM free),
        leased AS (
            UPDATE forebay.shard_owner lease
               SET owner = CASE WHEN wanted.keep THEN p_process END,
                   until = CASE WHEN wanted.keep THEN clock_timestamp() + make_interval(secs => p_lease_s)
                                ELSE '-infinity' END
              FROM wanted
             WHERE lease.shard = wanted.shard AND (lease.owner = p_process OR lease.until <= clock_timestamp())
            RETURNING lease.shard, wanted.keep)
        SELECT 'shard', leased.shard, NULL::uuid, NULL::bigint FROM leased WHERE leased.keep;
    END IF;
    IF p_dispatches AND p_has_room THEN
        RETURN QUERY
        WITH with_room AS MATERIALIZED (
            SELECT process.id, row_number() OVER (ORDER BY process.id) - 1 AS place, count(*) OVER () AS many
              FROM forebay.process
             WHERE process.dispatching AND process.has_room AND process.ended_at IS NULL
               AND process.heartbeat_at > clock_timestamp() - make_interval(secs => p_lease_s))
        SELECT 'claim', lease.shard, NULL::uuid, NULL::bigint
          FROM forebay.shard_owner lease CROSS JOIN with_room me
         WHERE me.id = p_process AND lease.shard % me.many = me.place
           AND NOT EXISTS (SELECT 1 FROM with_room roomy WHERE roomy.id = lease.owner);
    END IF;
    RETURN QUERY
    SELECT 'waiting', NULL::smallint, NULL::uuid, coalesce(sum(process.waiting_runs), 0)::bigint FROM forebay.process
     WHERE process.ended_at IS NULL AND process.heartbeat_at > clock_timestamp() - make_interval(secs => p_lease_s);
    RETURN QUERY
    SELECT CASE WHEN request.ends THEN 'cancel' ELSE 'wake' END, NULL::smallint, request.execution_id, NULL::bigint
      FROM forebay.run_request request
     WHERE request.owner = p_process AND (request.ends OR request.wake_at <= clock_timestamp())
     -- Requests to wake come first: the run reads them soon, and then they make room for the others.
     ORDER BY request.ends LIMIT 2000;
    RETURN QUERY
    SELECT 'dead', NULL::smallint, process.id, NULL::bigint FROM forebay.process
     WHERE process.id <> p_process AND (process.ended_at > clock_timestamp() - interval '1 minute'
           OR (process.ended_at IS NULL
               AND process.heartbeat_at < clock_timestamp() - make_interval(secs => p_dead_after_s)))
     LIMIT 100;
END $$;

CREATE FUNCTION forebay_r1.heartbeat_job(p_id uuid, p_workspace uuid, p_claim uuid, p_lease_s integer, p_workflow_id text, p_run_id text) RETURNS TABLE(answer text, lease_until timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    v_state text := forebay_r1.job_claim_state(p_id, p_workspace, p_claim);
BEGIN
    IF v_state = 'held' THEN
        IF p_workflow_id IS NOT NULL OR p_run_id IS NOT NULL THEN
            UPDATE public.workflow_queue_projection projection
               SET workflow_id = coalesce(p_workflow_id, projection.workflow_id),
                   workflow_run_id = coalesce(p_run_id, projection.workflow_run_id)
             WHERE projection.id = p_id AND projection.status = 'processing';
        END IF;
        RETURN QUERY
        UPDATE forebay.workflow_queue_job job
           SET lease_until = clock_timestamp()
                 + make_interval(secs => coalesce(p_lease_s, job.claim_lease_s, job.lease_s))
         WHERE job.id = p_id AND job.claimed_via = 'api' AND job.claim_id = p_claim RETURNING 'held', job.lease_until;
        RETURN;
    END IF;
    RETURN QUERY SELECT v_state, NULL::timestamptz;
END $$;

CREATE FUNCTION forebay_r1.holders(p_shard smallint, p_workspace uuid, p_after bigint, p_known bigint[]) RETURNS TABLE(definition_id uuid, key text, claim_number bigint)
    LANGUAGE sql STABLE
    AS $$
    SELECT holder.workflow_definition_id, holder.concurrency_key, holder.claim_number
      FROM forebay.execution_queue holder
     WHERE holder.shard = p_shard AND holder.workspace_id = p_workspace
       AND holder.claim_number > coalesce(p_after, 0)
    UNION ALL
    SELECT holder.workflow_definition_id, holder.concurrency_key, holder.claim_number
      FROM unnest(p_known) AS known(number)
     -- OFFSET 0: always a probe of one number, never a scan of all slots.
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.execution_queue item
                          WHERE item.shard = p_shard AND item.workspace_id = p_workspace
                            AND item.claim_number = known.number
                         OFFSET 0) holder
$$;

CREATE FUNCTION forebay_r1.id_at(p_at timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT (lpad(to_hex(greatest(floor(extract(epoch FROM p_at) * 1000)::bigint, 0)), 12, '0')
            || '00000000000000000000')::uuid
$$;

CREATE FUNCTION forebay_r1.is_unknown(p_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (SELECT 1
                     FROM forebay.workflow_execution_node node
                    WHERE node.execution_id = p_id AND node.status = 'UNKNOWN')
$$;

CREATE FUNCTION forebay_r1.job_claim_state(p_id uuid, p_workspace uuid, p_claim uuid) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_job record;
BEGIN
    SELECT projection.status, job.claim_id, job.claimed_via
      INTO v_job
      FROM public.workflow_queue_projection projection
      JOIN forebay.workflow_queue_job job ON job.id = projection.id
     WHERE projection.id = p_id AND (p_workspace IS NULL OR job.workspace_id = p_workspace)
     FOR UPDATE OF projection, job;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN CASE WHEN v_job.claim_id IS DISTINCT FROM p_claim OR v_job.claimed_via = 'projector' THEN 'lost'
                WHEN v_job.status = 'processing' THEN 'held'
                ELSE v_job.status END;
END $$;

CREATE FUNCTION forebay_r1.known_per_mark() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 64$$;

CREATE FUNCTION forebay_r1.list_executions(p_workspace uuid, p_definitions uuid[], p_statuses text[], p_from timestamp with time zone, p_until timestamp with time zone, p_before uuid, p_limit bigint, p_ids uuid[], p_most bigint) RETURNS TABLE(id uuid, workspace_id uuid, workflow_definition_id uuid, version_id uuid, status text, error jsonb, priority smallint, concurrency_key text, created_at timestamp with time zone, started_at timestamp with time zone, completed_at timestamp with time zone, duration_ms bigint, cancel_requested_at timestamp with time zone, version_number integer, definition_name text, wanted boolean, last boolean)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_from uuid := coalesce(forebay_r1.id_at(p_from - interval '1 minute'), '00000000-0000-0000-0000-000000000000');
    v_before uuid := coalesce(least(p_before, forebay_r1.id_at(p_until + interval '1 second')),
                              'ffffffff-ffff-ffff-ffff-ffffffffffff');
    -- A page without filters is full as soon as p_limit executions are read.
    v_step bigint := least(p_limit, p_most);
    v_read uuid[];
    v_wanted uuid[] := '{}';
    v_left bigint := p_most;
    -- Where reading stopped; null: at the end of the list.
    v_last uuid;
    -- A definition belongs to one workspace, so fewer executions are read.
    v_workspace uuid := coalesce(p_workspace, CASE WHEN cardinality(p_definitions) = 1 THEN (
        SELECT definition.workspace_id FROM forebay.workflow_definition definition
         WHERE definition.id = p_definitions[1]) END);
    -- If many items of the workspace wait, they are most of its newest executions, which come in the order of the list.
    v_all boolean := 'COMPLETED' = ANY (p_statuses) OR ('PENDING' = ANY (p_statuses) AND v_workspace IS NOT NULL AND
        (SELECT count(*) FROM forebay_r1.waiting_ids(v_workspace, p_most)) >= p_most);
BEGIN
    WHILE cardinality(p_definitions) > 0 IS NOT FALSE LOOP
        v_read := ARRAY(SELECT listed.id
                          FROM forebay_r1.listed_ids(v_workspace, p_definitions, p_statuses, v_all, v_from,
                                                     v_before, v_step, p_ids) AS listed(id));
        v_wanted := v_wanted || ARRAY(
            SELECT execution.id FROM unnest(v_read) WITH ORDINALITY AS read(id, ord)
             CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution stored WHERE stored.id = read.id
                                  LIMIT 1) execution
             WHERE execution.status = ANY (p_statuses) AND (execution.depth = 0 OR p_ids IS NOT NULL)
               AND execution.workspace_id = coalesce(p_workspace, execution.workspace_id)
               AND (p_definitions IS NULL OR execution.workflow_definition_id = ANY (p_definitions))
               AND execution.created_at >= coalesce(p_from, '-infinity')
               AND execution.created_at < coalesce(p_until, 'infinity')
             ORDER BY read.ord);
        EXIT WHEN cardinality(v_read) < v_step OR cardinality(v_wanted) >= p_limit;
        v_before := v_read[cardinality(v_read)];
        v_left := v_left - v_step;
        IF v_left <= 0 THEN
            v_last := v_before;
            EXIT;
        END IF;
        v_step := least(v_step * 4, v_left);
    END LOOP;
    RETURN QUERY
    SELECT execution.id, execution.workspace_id, execution.workflow_definition_id, execution.version_id,
           execution.status, execution.error, execution.priority, execution.concurrency_key, execution.created_at,
           execution.started_at, execution.completed_at, execution.duration_ms, execution.cancel_requested_at,
           version.number, definition.name, true, false
      FROM unnest(v_wanted[1:p_limit]) AS page(id)
     CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution stored WHERE stored.id = page.id LIMIT 1) execution
      LEFT JOIN forebay.workflow_definition_version version ON version.id = execution.version_id
      LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
     ORDER BY execution.id DESC;
    IF v_last IS NOT NULL THEN
        RETURN QUERY SELECT v_last, NULL::uuid, NULL::uuid, NULL::uuid, NULL, NULL::jsonb, NULL::smallint, NULL,
            NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::bigint, NULL::timestamptz, NULL::int, NULL,
            false, true;
    END IF;
END $$;

CREATE FUNCTION forebay_r1.listed_ids(p_workspace uuid, p_definitions uuid[], p_statuses text[], p_all boolean, p_from uuid, p_before uuid, p_most bigint, p_ids uuid[]) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
BEGIN
    IF p_ids IS NOT NULL THEN
        RETURN QUERY SELECT given.id FROM unnest(p_ids) AS given(id)
         WHERE given.id < p_before AND given.id >= p_from ORDER BY given.id DESC LIMIT p_most;
    ELSIF p_all AND p_definitions IS NOT NULL THEN
        RETURN QUERY
        SELECT found.id FROM unnest(p_definitions) AS wanted(id)
         CROSS JOIN LATERAL (
            SELECT execution.id FROM forebay.workflow_execution execution
             WHERE execution.depth = 0 AND (execution.workflow_definition_id, execution.id) < (wanted.id, p_before)
               AND (execution.workflow_definition_id, execution.id) >= (wanted.id, p_from)
             ORDER BY execution.workflow_definition_id DESC, execution.id DESC LIMIT p_most) found
         ORDER BY found.id DESC LIMIT p_most;
    ELSIF p_all AND p_workspace IS NOT NULL THEN
        RETURN QUERY
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.depth = 0 AND (execution.workspace_id, execution.id) < (p_workspace, p_before)
           AND (execution.workspace_id, execution.id) >= (p_workspace, p_from)
         ORDER BY execution.workspace_id DESC, execution.id DESC LIMIT p_most;
    ELSIF p_all THEN
        RETURN QUERY
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.depth = 0 AND execution.id < p_before AND execution.id >= p_from
         ORDER BY execution.id DESC LIMIT p_most;
    ELSE
        RETURN QUERY
        SELECT found.id FROM (
            SELECT open.id FROM forebay_r1.open_ids(p_workspace, p_statuses, p_from, p_before, p_most) AS open(id)
            UNION
            SELECT other.execution_id FROM unnest(p_statuses) AS requested(status) CROSS JOIN LATERAL (
                SELECT outcome.execution_id FROM forebay.execution_outcome outcome
                 WHERE (outcome.workspace_id, outcome.status, outcome.execution_id)
                       < (p_workspace, requested.status, p_before)
                   AND (outcome.workspace_id, outcome.status, outcome.execution_id)
                       >= (p_workspace, requested.status, p_from)
                 ORDER BY outcome.workspace_id DESC, outcome.status DESC, outcome.execution_id DESC LIMIT p_most) other
            UNION
            SELECT other.execution_id FROM unnest(p_statuses) AS requested(status) CROSS JOIN LATERAL (
                SELECT outcome.execution_id FROM forebay.execution_outcome outcome
                 WHERE p_workspace IS NULL AND outcome.status = requested.status
                   AND outcome.execution_id < p_before AND outcome.execution_id >= p_from
                 ORDER BY outcome.execution_id DESC LIMIT p_most) other) found
         ORDER BY found.id DESC LIMIT p_most;
    END IF;
END $$;

CREATE FUNCTION forebay_r1.lock_held(p_executions uuid[], p_owners uuid[], p_epochs bigint[]) RETURNS uuid[]
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    RETURN (SELECT array_agg(holder.workspace_id ORDER BY given.ord)
              FROM (SELECT *
                      FROM unnest(p_executions, p_owners, p_epochs)
                           WITH ORDINALITY AS given(execution_id, owner, epoch, ord)
                     ORDER BY given.execution_id) given
              LEFT JOIN LATERAL (
                   SELECT execution.workspace_id FROM forebay.workflow_execution execution
                    WHERE execution.id = given.execution_id AND execution.owner = given.owner
                      AND execution.owner_epoch = given.epoch AND execution.status = 'RUNNING'
                      FOR UPDATE) holder ON true);
END $$;

CREATE FUNCTION forebay_r1.lock_tree(p_execution uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    PERFORM 1
      FROM forebay.workflow_execution root
     WHERE root.id = (SELECT execution.root FROM forebay.workflow_execution execution WHERE execution.id = p_execution)
     FOR UPDATE;
    PERFORM 1 FROM forebay.workflow_execution execution WHERE execution.id = p_execution FOR UPDATE;
    RETURN (SELECT execution.completed_at IS NULL
              FROM forebay.workflow_execution execution
             WHERE execution.id = p_execution);
END $$;

CREATE FUNCTION forebay_r1.mark_lag_ms() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT 250$$;

CREATE FUNCTION forebay_r1.move_mark(p_workspace uuid, p_number bigint, p_now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
DECLARE
    v_shard CONSTANT smallint := forebay.shard_of(p_workspace)::smallint;
    v_newest CONSTANT bigint := (extract(epoch FROM p_now) * 1000)::bigint - forebay_r1.mark_lag_ms();
    v_mark forebay.claim_mark;
    v_known bigint[];
BEGIN
    INSERT INTO forebay.claim_mark (workspace_id) VALUES (p_workspace) ON CONFLICT DO NOTHING;
    SELECT * INTO v_mark
      FROM forebay.claim_mark
     WHERE claim_mark.workspace_id = p_workspace
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_known := ARRAY(SELECT DISTINCT holder.claim_number
                       FROM forebay_r1.holders(v_shard, p_workspace, v_mark.slots_after, v_mark.slots_known) holder
                      WHERE holder.claim_number < p_number
                      ORDER BY holder.claim_number);
    UPDATE forebay.claim_mark
       SET slots_after = CASE WHEN cardinality(v_known) > forebay_r1.known_per_mark() THEN v_known[1]
                              ELSE p_number END - 1,
           slots_known = CASE WHEN cardinality(v_known) > forebay_r1.known_per_mark() THEN '{}' ELSE v_known END,
           ready_from = ARRAY(
               SELECT greatest(v_mark.ready_from[level.priority], least(
                          v_newest + (level.priority - forebay.default_priority()) * forebay.priority_step_ms(),
                          (SELECT min(item.rank) FROM forebay.execution_queue item
                            WHERE item.shard = v_shard AND item.workspace_id = p_workspace
                              AND item.stage = forebay.stage_ready() AND item.priority = level.priority
                              AND item.rank >= v_mark.ready_from[level.priority])))
                 FROM generate_series(1, 5) AS level(priority)
                ORDER BY level.priority)
     WHERE claim_mark.workspace_id = p_workspace;
END $$;

CREATE FUNCTION forebay_r1.next_workspace_to_evaluate(p_after uuid) RETURNS uuid
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_workspace uuid := coalesce(p_after, v_nil);
    v_round int := 1;
    v_first bigint;
BEGIN
    FOR step IN 1..1000 LOOP
        v_workspace := (SELECT candidate.workspace_id FROM forebay.workflow_execution_candidate candidate
                     WHERE candidate.workspace_id > v_workspace ORDER BY candidate.workspace_id LIMIT 1);
        IF v_workspace IS NULL THEN
            EXIT WHEN v_round = 2;
            v_workspace := v_nil;
            v_round := 2;
            CONTINUE;
        END IF;
        v_first := (SELECT candidate.id
                      FROM forebay.workflow_execution_candidate candidate
                     WHERE candidate.workspace_id = v_workspace
                     ORDER BY candidate.id
                     LIMIT 1);
        PERFORM 1 FROM forebay.workflow_execution_candidate candidate
          WHERE candidate.id = v_first
            AND (candidate.claimed_until IS NULL OR candidate.claimed_until <= clock_timestamp())
          FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN v_workspace;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION forebay_r1.older_processes(p_release integer, p_dead_after_s double precision) RETURNS text
    LANGUAGE sql
    AS $$
    SELECT string_agg(format('%s (pid %s, release %s)', older.host, older.pid, older.release), ', '
                      ORDER BY older.started_at)
      FROM forebay.process older
     WHERE older.release < p_release AND older.ended_at IS NULL
       AND older.heartbeat_at > clock_timestamp() - make_interval(secs => p_dead_after_s)
$$;

CREATE FUNCTION forebay_r1.open_ids(p_workspace uuid, p_statuses text[], p_from uuid, p_before uuid, p_most bigint) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
BEGIN
    IF 'PENDING' = ANY (p_statuses) OR 'RUNNING' = ANY (p_statuses) THEN
        RETURN QUERY
        (SELECT slot.id FROM forebay.execution_queue slot
          WHERE slot.shard = forebay.shard_of(p_workspace)::smallint AND slot.workspace_id = p_workspace
            AND slot.claim_number IS NOT NULL AND slot.id < p_before AND slot.id >= p_from
          ORDER BY slot.id DESC LIMIT p_most)
        UNION ALL
        (SELECT slot.id FROM forebay.execution_queue slot
          WHERE p_workspace IS NULL AND slot.stage = forebay.stage_slot() AND slot.id < p_before AND slot.id >= p_from
          ORDER BY slot.id DESC LIMIT p_most);
    END IF;
    IF 'PENDING' = ANY (p_statuses) THEN
        RETURN QUERY
        (SELECT waiting.id FROM forebay_r1.waiting_ids(p_workspace, NULL) AS waiting(id)
          WHERE p_workspace IS NOT NULL AND waiting.id < p_before AND waiting.id >= p_from
          ORDER BY waiting.id DESC LIMIT p_most)
        UNION ALL
        -- Of everybody: at most p_most items, whatever their stage.
        (SELECT item.id FROM forebay.execution_queue item
          WHERE p_workspace IS NULL AND item.id < p_before AND item.id >= p_from
          ORDER BY item.id DESC LIMIT p_most);
    END IF;
END $$;

CREATE FUNCTION forebay_r1.open_wait(p_holder uuid, p_owner uuid, p_epoch bigint, p_execution uuid, p_node text, p_iteration integer, p_workspace uuid, p_attempt integer, p_kind text, p_event text, p_match text, p_queue text, p_lease_s double precision, p_input jsonb, p_expires_s double precision) RETURNS TABLE(held boolean, status text, attempt integer, expires_in_s double precision, outcome text, output jsonb, error jsonb, answered_by text, answered_at timestamp with time zone)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_wait;
    v_opened boolean := false;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution holder
     WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
       AND holder.status = 'RUNNING'
     FOR UPDATE;
    IF FOUND AND p_execution <> p_holder THEN
        PERFORM 1 FROM forebay.workflow_execution execution
         WHERE execution.id = p_execution AND execution.root = p_holder AND execution.status = 'RUNNING' FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::text, 0, NULL::float8, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text,
                            NULL::timestamptz;
        RETURN;
    END IF;
    INSERT INTO forebay.workflow_execution_wait (execution_id, node, iteration, id, workspace_id, holder, kind, attempt,
        status, event_type, match, events_from, recheck, queue, lease_s, input, opened_at, expires_at)
    SELECT p_execution, p_node, p_iteration, forebay.new_id(), p_workspace, p_holder, p_kind, p_attempt, 'OPEN',
           p_event, p_match, CASE WHEN p_event IS NOT NULL THEN execution.created_at END, p_event IS NOT NULL, p_queue,
           p_lease_s, p_input, clock_timestamp(), clock_timestamp() + make_interval(secs => p_expires_s)
      FROM forebay.workflow_execution execution WHERE execution.id = p_execution
    ON CONFLICT DO NOTHING;
    v_opened := FOUND;
    SELECT * INTO v_wait FROM forebay.workflow_execution_wait wait
     WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration FOR UPDATE;
    IF v_wait.attempt = 0 AND v_wait.status = 'ANSWERED' THEN
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'RECEIVED', read_at = clock_timestamp(), holder = p_holder, attempt = p_attempt,
               input = p_input, opened_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'ANSWERED'
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt < p_attempt AND v_wait.status <> 'CLOSED' THEN
        v_opened := true;
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'OPEN', holder = p_holder, attempt = p_attempt, event_type = p_event, match = p_match,
               events_from = CASE WHEN p_event IS NOT NULL
                                  THEN (SELECT execution.created_at
                                          FROM forebay.workflow_execution execution
                                         WHERE execution.id = p_execution) END,
               recheck = p_event IS NOT NULL, recheck_xid = NULL, queue = p_queue, lease_s = p_lease_s, input = p_input,
               opened_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => p_expires_s),
               ended_claim = CASE WHEN wait.outcome IS NOT NULL THEN wait.claim_id END, claim_id = NULL, worker = NULL,
               claim_lease_s = NULL, lease_until = NULL, progress = NULL, deliveries = 0, lost = 0, outcome = NULL,
               output = NULL, error = NULL, answered_by = NULL, answered_at = NULL, read_at = NULL
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.attempt < p_attempt
           AND wait.status IN ('OPEN', 'CLAIMED', 'ANSWERED', 'RECEIVED', 'EXPIRED')
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt = p_attempt AND v_wait.status IN ('OPEN', 'CLAIMED')
          AND v_wait.expires_at <= clock_timestamp() THEN
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'EXPIRED', lease_until = NULL, recheck = false, read_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status IN ('OPEN', 'CLAIMED')
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt = p_attempt AND v_wait.status IN ('ANSWERED', 'EXPIRED') AND v_wait.read_at IS NULL THEN
        UPDATE forebay.workflow_execution_wait wait
           SET status = CASE wait.status WHEN 'ANSWERED' THEN 'RECEIVED' ELSE wait.status END,
               read_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status IN ('ANSWERED', 'EXPIRED')
        RETURNING * INTO v_wait;
    END IF;
    IF v_opened AND v_wait.event_type IS NOT NULL THEN
        PERFORM forebay_r1.add_candidate_of_wait(v_wait);
    ELSIF v_opened AND v_wait.kind = 'TASK' THEN
        PERFORM forebay.notify_change();
    END IF;
    RETURN QUERY SELECT true, v_wait.status, v_wait.attempt,
                        extract(epoch FROM v_wait.expires_at - clock_timestamp())::float8, v_wait.outcome,
                        v_wait.output, v_wait.error, v_wait.answered_by, v_wait.answered_at;
END $$;

CREATE FUNCTION forebay_r1.own_rank(p_created timestamp with time zone, p_priority smallint) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT (extract(epoch FROM p_created) * 1000)::bigint
         + (p_priority - forebay.default_priority()) * forebay.priority_step_ms()
$$;

CREATE FUNCTION forebay_r1.park_runs(p_ids uuid[], p_park_ms bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    UPDATE forebay.workflow_execution execution SET owner = NULL, owner_epoch = execution.owner_epoch + 1
     WHERE execution.id = ANY (p_ids) AND execution.status = 'RUNNING';
    UPDATE forebay.execution_queue item SET owner = NULL
     WHERE item.id = ANY (p_ids) AND item.status = 'DISPATCHED';
    INSERT INTO forebay.run_request AS known (execution_id, root, engine, wake_at)
    SELECT execution.id, coalesce(execution.root, execution.id), execution.engine,
           least(execution.deadline_at, clock_timestamp() + make_interval(secs => parked.ms / 1000.0))
      FROM (SELECT run.id, min(run.park_ms) AS ms FROM unnest(p_ids, p_park_ms) AS run(id, park_ms)
             GROUP BY run.id) parked
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.workflow_execution stored
                          WHERE stored.id = parked.id AND stored.status = 'RUNNING'
                          LIMIT 1) execution
    ON CONFLICT (execution_id) DO UPDATE SET owner = NULL, wake_at = least(known.wake_at, excluded.wake_at);
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
        SELECT pending.id
          FROM (SELECT DISTINCT requested.type
                  FROM forebay_r1.pending_types(NULL, p_types, 1000) AS requested(type)) requested
         CROSS JOIN LATERAL (SELECT job.id, job.pending_since FROM forebay.workflow_queue_job job
                              WHERE job.pending_since IS NOT NULL
                                AND job.event_type >= requested.type COLLATE "C"
                                AND job.event_type <= requested.type COLLATE "C"
                              ORDER BY job.event_type, job.pending_since, job.id LIMIT p_limit) pending
         ORDER BY pending.pending_since, pending.id LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT pending.id
          FROM (SELECT DISTINCT requested.type
                  FROM forebay_r1.pending_types(p_workspace, p_types, 1000) AS requested(type)) requested
         CROSS JOIN LATERAL (SELECT job.id, job.pending_since FROM forebay.workflow_queue_job job
                              WHERE job.pending_since IS NOT NULL AND job.workspace_id = p_workspace
                                AND job.event_type >= requested.type COLLATE "C"
                                AND job.event_type <= requested.type COLLATE "C"
                              ORDER BY job.event_type, job.pending_since, job.id LIMIT p_limit) pending
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
    v_pattern text;
    v_prefix text;
    v_type text COLLATE "C";
BEGIN
    FOREACH v_pattern IN ARRAY p_types LOOP
        IF v_pattern NOT LIKE '%.*' THEN
            RETURN NEXT v_pattern;
            CONTINUE;
        END IF;
        v_prefix := left(v_pattern, -1);
        v_type := v_prefix;
        FOR step IN 1..p_most LOOP
            IF p_workspace IS NULL THEN
                v_type := (SELECT job.event_type FROM forebay.workflow_queue_job job
                            WHERE job.pending_since IS NOT NULL AND job.event_type > v_type
                            ORDER BY job.event_type
                            LIMIT 1);
            ELSE
                v_type := (SELECT job.event_type FROM forebay.workflow_queue_job job
                            WHERE job.pending_since IS NOT NULL AND job.workspace_id = p_workspace
                              AND job.event_type > v_type
                            ORDER BY job.event_type LIMIT 1);
            END IF;
            EXIT WHEN v_type IS NULL OR NOT starts_with(v_type, v_prefix);
            RETURN NEXT v_type;
        END LOOP;
    END LOOP;
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
END $$;

CREATE FUNCTION forebay_r1.read_answers(p_holder uuid, p_owner uuid, p_epoch bigint) RETURNS TABLE(held boolean, execution uuid, node text, iteration integer, attempt integer, status text, outcome text, output jsonb, error jsonb, answered_by text, answered_at timestamp with time zone)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM forebay.workflow_execution holder
     WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
       AND holder.status = 'RUNNING'
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb,
                            NULL::text, NULL::timestamptz;
        RETURN;
    END IF;
    DELETE FROM forebay.run_request request WHERE request.execution_id = p_holder AND NOT request.ends;
    UPDATE forebay.workflow_execution_wait wait SET status = 'EXPIRED', lease_until = NULL, recheck = false
     WHERE wait.holder = p_holder AND wait.status IN ('OPEN', 'CLAIMED') AND wait.expires_at <= clock_timestamp();
    RETURN QUERY
    UPDATE forebay.workflow_execution_wait wait
       SET status = CASE wait.status WHEN 'ANSWERED' THEN 'RECEIVED' ELSE wait.status END, read_at = clock_timestamp()
     WHERE wait.holder = p_holder AND wait.read_at IS NULL AND wait.status IN ('ANSWERED', 'EXPIRED')
    RETURNING true, wait.execution_id, wait.node, wait.iteration, wait.attempt, wait.status, wait.outcome, wait.output,
              wait.error, wait.answered_by, wait.answered_at;
    RETURN QUERY SELECT true, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb,
                        NULL::text, NULL::timestamptz;
END $$;

CREATE FUNCTION forebay_r1.rebuild_jobs() RETURNS TABLE(id uuid, how text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    v_found record;
BEGIN
    LOCK TABLE public.workflow_queue_projection IN SHARE ROW EXCLUSIVE MODE;
    PERFORM set_config('forebay.projection', 'rebuild', true);
    SELECT coalesce(array_agg(differing.id), '{}') AS ids, coalesce(array_agg(differing.how), '{}') AS hows
      INTO v_found
      FROM forebay_r1.differing_jobs() differing;
    DELETE FROM public.workflow_queue_projection projection WHERE projection.id = ANY (v_found.ids);
    INSERT INTO public.workflow_queue_projection
    SELECT folded.* FROM forebay_r1.folded_jobs() folded WHERE folded.id = ANY (v_found.ids);
    DELETE FROM forebay.workflow_queue_job job
     WHERE job.id = ANY (v_found.ids)
       AND NOT EXISTS (SELECT 1 FROM public.workflow_queue_projection projection WHERE projection.id = job.id);
    -- Rows of workflow_queue_job that were lost are made from the facts. A processing job gets a claim as if by plain
    -- SQL.
    INSERT INTO forebay.workflow_queue_job (id, event_type, event_id, event_workspace_id, workspace_id, version,
                                            pending_since, claimed_via, lease_until, retry_from)
    SELECT projection.id, projection.event_type, projection.event_id, event.workspace_id, last.workspace_id,
           last.stream_version, CASE WHEN projection.status = 'pending' THEN projection.updated_at END,
           CASE WHEN projection.status = 'processing' THEN 'sql' END,
           CASE WHEN projection.status = 'processing'
                THEN greatest(projection.claimed_at, projection.updated_at)
                     + make_interval(secs => forebay.default_job_lease_s()) END,
           CASE WHEN projection.status = 'failed' AND projection.retry_count < forebay.max_job_failures()
                THEN projection.failed_at END
      FROM public.workflow_queue_projection projection
     CROSS JOIN LATERAL (SELECT fact.workspace_id, fact.stream_version, fact.event_metadata
                           FROM public.domain_events fact
                          WHERE fact.stream_id = projection.id AND fact.stream_type = 'workflow_queue'
                          ORDER BY fact.stream_version DESC
                          LIMIT 1) last
      LEFT JOIN LATERAL forebay.event_of(projection.event_id,
           coalesce((last.event_metadata ->> 'event_workspace_id')::uuid, last.workspace_id), projection.stream_id,
           projection.stream_type, projection.event_type) event ON true
     WHERE projection.id = ANY (v_found.ids)
    ON CONFLICT (id) DO NOTHING;
    PERFORM set_config('forebay.projection', '', true);
    RETURN QUERY SELECT * FROM unnest(v_found.ids, v_found.hows);
END $$;

CREATE FUNCTION forebay_r1.recheck_events(p_limit integer) RETURNS bigint
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_wait;
    v_count bigint := 0;
BEGIN
    FOR v_wait IN
        UPDATE forebay.workflow_execution_wait wait SET recheck = false, recheck_xid = NULL
         WHERE wait.id = ANY (ARRAY(
               SELECT wait.id FROM forebay.workflow_execution_wait wait
                WHERE wait.recheck AND wait.recheck_xid <= pg_snapshot_xmin(pg_current_snapshot())
                  AND wait.status = 'OPEN'
                ORDER BY wait.recheck_xid LIMIT p_limit FOR UPDATE SKIP LOCKED))
           AND wait.status = 'OPEN'
        RETURNING wait.*
    LOOP
        PERFORM forebay_r1.add_candidate_of_wait(v_wait);
        v_count := v_count + 1;
    END LOOP;
    UPDATE forebay.workflow_execution_wait wait SET recheck_xid = pg_current_xact_id()
     WHERE wait.id = ANY (ARRAY(
           SELECT wait.id FROM forebay.workflow_execution_wait wait
            WHERE wait.recheck AND wait.recheck_xid IS NULL AND wait.status = 'OPEN'
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED))
       AND wait.status = 'OPEN';
    RETURN v_count;
END $$;

CREATE FUNCTION forebay_r1.reconcile_jobs(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    v_job record;
    v_done int := 0;
BEGIN
    FOR v_job IN
        SELECT job.id, job.claim_id, execution.id AS execution, item.status AS item_status
          FROM forebay.workflow_queue_job job
          JOIN public.workflow_queue_projection projection ON projection.id = job.id
               AND projection.status = 'processing'
          LEFT JOIN forebay.workflow_execution execution ON execution.id = job.claim_id
          -- LIMIT 1: always a primary-key probe, never a scan.
          LEFT JOIN LATERAL (SELECT item.status
                               FROM forebay.execution_queue item
                              WHERE item.id = job.claim_id
                              LIMIT 1) item ON execution.id IS NULL
         WHERE job.claimed_via = 'projector'
           AND (execution.completed_at IS NOT NULL
                OR execution.id IS NULL AND coalesce(item.status IN ('PENDING', 'FAILED'), true))
         ORDER BY job.id LIMIT p_limit FOR UPDATE OF projection SKIP LOCKED
    LOOP
        IF v_job.execution IS NOT NULL THEN
            v_done := v_done + forebay_r1.end_jobs_of(ARRAY[v_job.execution]);
        ELSIF v_job.item_status = 'FAILED' THEN
            v_done := v_done + forebay_r1.fail_jobs_of_missing(ARRAY[v_job.claim_id]);
        ELSE
            PERFORM set_config('forebay.claim', v_job.claim_id::text, true);
            UPDATE public.workflow_queue_projection projection
               SET status = 'pending'
             WHERE projection.id = v_job.id AND projection.status = 'processing';
            PERFORM set_config('forebay.claim', '', true);
            v_done := v_done + 1;
        END IF;
    END LOOP;
    RETURN v_done;
END $$;

CREATE FUNCTION forebay_r1.record(p_process uuid, r_ids uuid[], r_holders uuid[], r_epochs bigint[], r_park_ms bigint[], f_runs integer[], f_nodes text[], f_iterations integer[], f_statuses text[], f_attempts integer[], f_next_in_ms bigint[], f_labels text[], f_inputs jsonb[], f_outputs jsonb[], f_errors jsonb[], f_once boolean[], e_runs integer[], e_settled integer[], e_outcomes text[], e_outputs jsonb[], e_errors jsonb[], p_actor text) RETURNS TABLE(run bigint, held boolean, ended boolean, workspace uuid, freed boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $_$
#variable_conflict use_column
DECLARE
    -- For each run, by position: how many nodes it had settled (-1 if not held), the location of its row, and its
    -- workspace.
    v_seqs bigint[];
    v_rows tid[];
    v_workspaces uuid[];
    v_ended record;
BEGIN
    -- Rows are changed below by the location that this statement finds and locks. A join by id could be planned badly
    -- while the statistics say that the table is empty: it would read the whole table.
    SELECT array_agg(coalesce(holder.last_seq, -1) ORDER BY run.ord),
           array_agg(coalesce(holder.ctid, '(0,0)') ORDER BY run.ord),
           array_agg(coalesce(holder.workspace_id, '00000000-0000-0000-0000-000000000000') ORDER BY run.ord)
      INTO v_seqs, v_rows, v_workspaces
      FROM (SELECT *
              FROM unnest(r_holders, r_epochs) WITH ORDINALITY AS run(holder_id, epoch, ord)
             ORDER BY run.holder_id) run
      LEFT JOIN LATERAL (
           SELECT execution.ctid, execution.last_seq, execution.workspace_id FROM forebay.workflow_execution execution
            WHERE execution.id = run.holder_id AND execution.owner = coalesce(p_process, execution.owner)
              AND execution.owner_epoch = run.epoch AND execution.status = 'RUNNING'
              FOR UPDATE) holder ON true;
    IF r_ids <> r_holders THEN
        SELECT array_agg(CASE WHEN run.id = run.holder_id THEN run.seq ELSE coalesce(child.last_seq, -1) END
                         ORDER BY run.ord),
               array_agg(CASE WHEN run.id = run.holder_id THEN run.location ELSE coalesce(child.ctid, '(0,0)') END
                         ORDER BY run.ord)
          INTO v_seqs, v_rows
          FROM (SELECT *
                  FROM unnest(r_ids, r_holders, v_seqs, v_rows)
                       WITH ORDINALITY AS run(id, holder_id, seq, location, ord)
                 ORDER BY run.id) run
          LEFT JOIN LATERAL (
               SELECT execution.ctid, execution.last_seq FROM forebay.workflow_execution execution
                WHERE execution.id = run.id AND run.id <> run.holder_id AND run.seq >= 0
                  AND execution.root = run.holder_id AND execution.status = 'RUNNING'
                  FOR UPDATE) child ON true;
    END IF;

    WITH facts AS MATERIALIZED (
        SELECT fact.*, r_ids[fact.run] AS execution_id, v_workspaces[fact.run] AS workspace_id,
               CASE WHEN fact.status = 'RETRYING' THEN jsonb_build_array(jsonb_build_object(
                    'attempt', fact.attempt - 1, 'at', clock_timestamp(), 'error', fact.error)) END AS failed_attempt,
               CASE WHEN fact.settles
                    THEN v_seqs[fact.run]
                        + row_number() OVER (PARTITION BY fact.run, fact.settles ORDER BY fact.ord) END AS seq
          FROM (SELECT given.*, given.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN') AS settles
                  FROM unnest(f_runs, f_nodes, f_iterations, f_statuses, f_attempts, f_next_in_ms, f_labels, f_inputs,
                              f_outputs, f_errors, f_once)
                       WITH ORDINALITY AS given(run, node, iteration, status, attempt, next_in_ms, label, input,
                                                  output, error, once, ord)
                 WHERE v_seqs[given.run] >= 0) fact),
    stored AS (
        INSERT INTO forebay.workflow_execution_node AS known (execution_id, node, iteration, workspace_id, status,
            attempt, seq, label, next_at, input, output, error, earlier, started_at, completed_at, duration_ms, once)
        SELECT fact.execution_id, fact.node, fact.iteration, fact.workspace_id, fact.status, fact.attempt, fact.seq,
               fact.label, clock_timestamp() + make_interval(secs => fact.next_in_ms / 1000.0), fact.input, fact.output,
               fact.error, fact.failed_attempt,
               CASE WHEN fact.status IN ('SKIPPED', 'CANCELED') THEN NULL ELSE clock_timestamp() END,
               CASE WHEN fact.seq IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN fact.seq IS NOT NULL THEN 0 END, fact.once
          FROM facts fact
        ON CONFLICT (execution_id, node, iteration) DO UPDATE
           SET status = excluded.status, attempt = excluded.attempt, seq = excluded.seq, label = excluded.label,
               next_at = excluded.next_at, input = coalesce(excluded.input, known.input),
               -- functions/collect.sql has already stored the results of a loop's items.
               output = coalesce(excluded.output, CASE WHEN excluded.status = 'COMPLETED' THEN known.output END),
               error = excluded.error, completed_at = excluded.completed_at, once = known.once OR excluded.once,
               -- A loop that a rerun continues has a row before it begins.
               started_at = coalesce(known.started_at, excluded.started_at),
               earlier = CASE WHEN excluded.status = 'RETRYING' AND excluded.attempt > known.attempt
                    THEN jsonb_path_query_array(coalesce(known.earlier, '[]') || excluded.earlier,
                                                '$[last - 9 to last]')
                    ELSE coalesce(known.earlier, excluded.earlier) END,
               duration_ms = CASE WHEN excluded.completed_at IS NOT NULL
                    THEN (extract(epoch FROM clock_timestamp() - known.started_at) * 1000)::bigint END
         WHERE known.status IN ('PENDING', 'RUNNING', 'RETRYING')
        RETURNING known.execution_id, known.workspace_id, known.seq),
    -- One change-log entry for the executions whose nodes changed. An execution that ends writes its own entry.
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces)
        SELECT 'nodes', 'UPDATE', array_agg(moved.execution_id), array_agg(moved.workspace_id)
          FROM (SELECT DISTINCT stored.execution_id, stored.workspace_id FROM stored
                 WHERE cardinality(e_runs) < cardinality(r_ids)
                   AND NOT stored.execution_id = ANY (ARRAY(SELECT r_ids[ending.run]
                                                              FROM unnest(e_runs) AS ending(run)))) moved
        HAVING count(*) > 0)
    -- Only stored facts count: a repeated or late fact is no progress. The row of a run that ends is written only once,
    -- below. Its count needs no such check, because facts of an ended run cannot be repeated.
    UPDATE forebay.workflow_execution execution SET last_seq = progress.seq
      FROM (SELECT run.location, max(stored.seq) AS seq
              FROM stored JOIN unnest(r_ids, v_rows) WITH ORDINALITY AS run(id, location, ord)
                ON run.id = stored.execution_id AND v_seqs[run.ord] >= 0 AND NOT run.ord = ANY (e_runs)
             WHERE stored.seq IS NOT NULL AND cardinality(e_runs) < cardinality(r_ids) GROUP BY run.location) progress
     WHERE execution.ctid = progress.location;

    IF EXISTS (SELECT 1 FROM unnest(r_park_ms) AS run(park_ms) WHERE run.park_ms IS NOT NULL) THEN
        PERFORM forebay_r1.park_runs(
            ARRAY(SELECT run.id FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS run(id, park_ms, ord)
                   WHERE run.park_ms IS NOT NULL AND v_seqs[run.ord] >= 0),
            ARRAY(SELECT run.park_ms FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS run(id, park_ms, ord)
                   WHERE run.park_ms IS NOT NULL AND v_seqs[run.ord] >= 0));
    END IF;

    WITH ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = ending.outcome, output = ending.output, error = ending.error, completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint,
               last_seq = execution.last_seq + ending.settled, owner = NULL, owner_epoch = execution.owner_epoch + 1
          FROM unnest(e_runs, e_settled, e_outcomes, e_outputs, e_errors)
               AS ending(run, settled, outcome, output, error)
         WHERE execution.ctid = v_rows[ending.run] AND v_seqs[ending.run] >= 0 AND execution.status = 'RUNNING'
        RETURNING execution.id, execution.workspace_id, execution.status, execution.error, execution.trigger,
                  execution.parent IS NOT NULL OR execution.descendants > 0 AS of_tree),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status
          FROM ended
         GROUP BY ended.status)
    SELECT array_agg(ended.id) AS ids, array_agg(ended.status) AS outcomes, array_agg(ended.error) AS errors,
           array_agg(ended.id) FILTER (WHERE ended.trigger ->> 'type' = 'event') AS of_events,
           array_agg(ended.id) FILTER (WHERE ended.of_tree) AS of_trees
      INTO v_ended FROM ended;
    -- Nodes that its descendants settled count as progress of the root.
    IF r_ids <> r_holders THEN
        UPDATE forebay.workflow_execution root
           SET tree_seq = root.tree_seq + (SELECT count(*) FROM unnest(f_runs, f_statuses) AS fact(run, status)
                WHERE r_holders[fact.run] = root.id AND r_ids[fact.run] <> root.id AND v_seqs[fact.run] >= 0
                  AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN'))
         WHERE root.id = ANY (ARRAY(
               SELECT DISTINCT r_holders[fact.run] FROM unnest(f_runs, f_statuses) AS fact(run, status)
                WHERE r_ids[fact.run] <> r_holders[fact.run] AND v_seqs[fact.run] >= 0
                  AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')));
    END IF;
    IF v_ended.ids IS NULL THEN
        RETURN QUERY SELECT run.ord, v_seqs[run.ord] >= 0, false, NULL::uuid, false
          FROM unnest(r_ids) WITH ORDINALITY AS run(id, ord);
    ELSE
        IF EXISTS (SELECT 1
                     FROM forebay.webhook live
                    WHERE live.workspace_id = ANY (v_workspaces) AND live.disabled_at IS NULL) THEN
            PERFORM forebay_r1.add_deliveries(v_ended.ids);
        END IF;
        RETURN QUERY
        SELECT run.ord, v_seqs[run.ord] >= 0, followed.execution IS NOT NULL, v_workspaces[run.ord],
               coalesce(followed.freed, false)
          FROM unnest(r_ids) WITH ORDINALITY AS run(id, ord)
          LEFT JOIN forebay_r1.after_end(v_ended.ids, v_ended.outcomes, v_ended.errors, v_ended.of_events,
                                         v_ended.of_trees, false, p_actor)
                 AS followed ON followed.execution = run.id AND v_seqs[run.ord] >= 0;
    END IF;
END $_$;

CREATE FUNCTION forebay_r1.recover_jobs(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    v_job record;
    v_done int := 0;
BEGIN
    FOR v_job IN
        SELECT projection.id, job.claim_id
          FROM forebay.workflow_queue_job job
          JOIN public.workflow_queue_projection projection ON projection.id = job.id
         WHERE job.lease_until < clock_timestamp() AND projection.status = 'processing'
         ORDER BY job.lease_until LIMIT p_limit FOR UPDATE OF projection, job SKIP LOCKED
    LOOP
        PERFORM set_config('forebay.claim', coalesce(v_job.claim_id::text, ''), true);
        UPDATE public.workflow_queue_projection projection
           SET status = 'pending'
         WHERE projection.id = v_job.id AND projection.status = 'processing';
        v_done := v_done + 1;
    END LOOP;
    PERFORM set_config('forebay.claim', '', true);
    RETURN v_done;
END $$;

CREATE FUNCTION forebay_r1.release_unbound_jobs(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    v_done int;
BEGIN
    WITH gone AS MATERIALIZED (
        SELECT pending.id
          FROM forebay_r1.bindings_of_pending_jobs() AS pending(id)
         WHERE NOT EXISTS (SELECT 1 FROM forebay.event_binding binding WHERE binding.id = pending.id)),
    unbound AS MATERIALIZED (
        SELECT job.id FROM gone
         CROSS JOIN LATERAL (SELECT job.id FROM forebay.workflow_queue_job job
                              WHERE job.binding_id = gone.id AND job.pending_since IS NOT NULL
                                AND job.due_at IS NOT NULL
                              LIMIT p_limit FOR UPDATE SKIP LOCKED) job
         LIMIT p_limit)
    UPDATE forebay.workflow_queue_job job
       SET due_at = NULL
     WHERE job.id = ANY (ARRAY(SELECT unbound.id FROM unbound)) AND job.due_at IS NOT NULL;
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN v_done;
END $$;

CREATE FUNCTION forebay_r1.report_attempts(p_executions uuid[], p_owners uuid[], p_epochs bigint[], p_fences integer[], p_nodes text[], p_iterations integer[], p_statuses text[], p_attempts integer[], p_next_in_ms bigint[], p_labels text[], p_outputs jsonb[], p_errors jsonb[], p_outcomes text[], p_end_outputs jsonb[], p_end_errors jsonb[], p_actor text) RETURNS TABLE(report_at bigint, held boolean, current boolean, ended boolean, freed uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_workspaces uuid[];
    v_current boolean[];
    v_runs uuid[];
    v_epochs bigint[];
    v_facts record;
    v_ends record;
    v_ended boolean[];
    v_freed uuid[];
BEGIN
    v_workspaces := forebay_r1.lock_held(p_executions, p_owners, p_epochs);
    v_current := ARRAY(
        SELECT node.execution_id IS NOT NULL
          FROM unnest(p_executions, v_workspaces, p_nodes, p_iterations, p_fences)
               WITH ORDINALITY AS given(execution_id, workspace_id, node, iteration, fence, ord)
          LEFT JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_node stored
                WHERE stored.execution_id = given.execution_id AND stored.node = given.node
                  AND stored.iteration = given.iteration
                LIMIT 1) node
            ON node.fence = given.fence AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')
           AND given.workspace_id IS NOT NULL
         ORDER BY given.ord);
    SELECT array_agg(run.id), array_agg(run.epoch)
      INTO v_runs, v_epochs
      FROM (SELECT DISTINCT given.id, given.epoch
              FROM unnest(p_executions, p_epochs) WITH ORDINALITY AS given(id, epoch, ord)
             WHERE v_current[given.ord]) run;
    IF v_runs IS NOT NULL THEN
        SELECT array_agg(array_position(v_runs, given.execution_id) ORDER BY given.ord) AS runs,
               array_agg(given.node ORDER BY given.ord) AS nodes,
               array_agg(given.iteration ORDER BY given.ord) AS iterations,
               array_agg(given.status ORDER BY given.ord) AS statuses,
               array_agg(given.attempt ORDER BY given.ord) AS attempts,
               array_agg(given.next_in_ms ORDER BY given.ord) AS next_in_ms,
               array_agg(given.label ORDER BY given.ord) AS labels,
               array_agg(given.output ORDER BY given.ord) AS outputs,
               array_agg(given.error ORDER BY given.ord) AS errors,
               array_agg(NULL::jsonb) AS no_inputs, array_agg(false) AS never_once
          INTO v_facts
          FROM unnest(p_executions, p_nodes, p_iterations, p_statuses, p_attempts, p_next_in_ms, p_labels, p_outputs,
                      p_errors)
               WITH ORDINALITY AS given(execution_id, node, iteration, status, attempt, next_in_ms, label, output,
                                        error, ord)
         WHERE v_current[given.ord];
        SELECT coalesce(array_agg(array_position(v_runs, given.execution_id) ORDER BY given.ord), '{}') AS runs,
               coalesce(array_agg(given.settled ORDER BY given.ord), '{}') AS settled,
               coalesce(array_agg(given.outcome ORDER BY given.ord), '{}') AS outcomes,
               coalesce(array_agg(given.output ORDER BY given.ord), '{}') AS outputs,
               coalesce(array_agg(given.error ORDER BY given.ord), '{}') AS errors
          INTO v_ends
          FROM (SELECT ending.*, (SELECT count(*)::int
                                    FROM unnest(p_executions, p_statuses) WITH ORDINALITY AS fact(id, status, ord)
                                   WHERE fact.id = ending.execution_id AND v_current[fact.ord]
                                     AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN'))
                       AS settled
                  FROM unnest(p_executions, p_outcomes, p_end_outputs, p_end_errors)
                       WITH ORDINALITY AS ending(execution_id, outcome, output, error, ord)
                 WHERE ending.outcome IS NOT NULL AND v_current[ending.ord]) given;
        SELECT array_agg(recorded.ended ORDER BY recorded.run),
               array_agg(CASE WHEN recorded.freed THEN recorded.workspace END ORDER BY recorded.run)
          INTO v_ended, v_freed
          -- The rows are locked and every run is held, whoever owns it: no owner has to be named.
          FROM forebay_r1.record(
               NULL, v_runs, v_runs, v_epochs, array_fill(NULL::bigint, ARRAY[cardinality(v_runs)]),
               v_facts.runs, v_facts.nodes, v_facts.iterations, v_facts.statuses, v_facts.attempts, v_facts.next_in_ms,
               v_facts.labels, v_facts.no_inputs, v_facts.outputs, v_facts.errors, v_facts.never_once,
               v_ends.runs, v_ends.settled, v_ends.outcomes, v_ends.outputs, v_ends.errors, p_actor) recorded;
    END IF;
    RETURN QUERY
    SELECT given.ord, given.workspace_id IS NOT NULL, v_current[given.ord],
           given.outcome IS NOT NULL AND coalesce(v_ended[array_position(v_runs, given.execution_id)], false),
           CASE WHEN given.outcome IS NOT NULL THEN v_freed[array_position(v_runs, given.execution_id)] END
      FROM unnest(p_executions, v_workspaces, p_outcomes)
           WITH ORDINALITY AS given(execution_id, workspace_id, outcome, ord);
END $$;

CREATE FUNCTION forebay_r1.rerun(p_id uuid, p_workspace uuid, p_definition uuid, p_input jsonb, p_priority smallint, p_key text, p_idempotency text, p_fingerprint bytea, p_trigger jsonb, p_trace text, p_version uuid, p_of uuid, p_kept text[], p_actor text, p_semantics integer, p_step_ms bigint, p_max_backlog integer, p_done text[], p_loops text[]) RETURNS TABLE(ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_started record;
BEGIN
    SELECT * INTO v_started FROM forebay.enqueue_many(
        ARRAY[p_id], ARRAY[p_workspace], ARRAY[p_definition], ARRAY[p_input], ARRAY[p_priority],
        ARRAY[NULL::timestamptz], ARRAY[p_key], ARRAY[p_idempotency], ARRAY[p_fingerprint], ARRAY[p_trigger],
        ARRAY[p_trace], ARRAY[p_version], ARRAY[p_of], ARRAY[p_actor], p_semantics, p_step_ms, p_max_backlog, true);
    IF v_started.outcome = 'accepted' THEN
        WITH loops AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, input)
            SELECT p_id, original.node, 0, original.workspace_id, 'PENDING', original.input
              FROM forebay.workflow_execution_node original
             WHERE original.execution_id = p_of AND original.workspace_id = p_workspace
               AND original.node = ANY (p_loops) AND original.iteration = 0
               AND original.input IS NOT NULL
            RETURNING node, coalesce(input ->> 'on_item_error', 'fail') <> 'fail' AS goes_on),
        copied AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, attempt,
                seq, label, input, output, error, earlier, started_at, completed_at, duration_ms, kept_from)
            SELECT p_id, original.node, original.iteration, original.workspace_id,
                   CASE WHEN original.node = ANY (p_done) AND original.status = 'UNKNOWN' THEN 'COMPLETED'
                        ELSE original.status END, original.attempt,
                   row_number() OVER (ORDER BY original.seq, original.node, original.iteration), original.label,
                   original.input, original.output,
                   CASE WHEN original.node = ANY (p_done) AND original.status = 'UNKNOWN' THEN NULL
                        ELSE original.error END, original.earlier, original.started_at, original.completed_at,
                   original.duration_ms, coalesce(original.kept_from, original.execution_id)
              FROM forebay.workflow_execution_node original
              LEFT JOIN loops ON loops.node = original.node
             WHERE original.execution_id = p_of AND original.workspace_id = p_workspace AND original.seq IS NOT NULL
               AND (original.node = ANY (p_kept) OR (loops.node IS NOT NULL AND original.iteration > 0 AND (
                    original.status IN ('COMPLETED', 'SKIPPED') OR (original.status = 'FAILED' AND loops.goes_on)
                    OR (original.status = 'UNKNOWN' AND original.node = ANY (p_done)))))
            RETURNING seq)
        UPDATE forebay.workflow_execution execution SET last_seq = (SELECT max(copied.seq) FROM copied)
         WHERE execution.id = p_id AND execution.status = 'PENDING' AND EXISTS (SELECT 1 FROM copied);
    END IF;
    RETURN QUERY SELECT v_started.ord, v_started.outcome, v_started.execution, v_started.workspace, v_started.stage;
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
    v_before uuid := (lpad(to_hex((extract(epoch FROM v_old) * 1000)::bigint), 12, '0')
        || '00000000000000000000')::uuid;
    v_ids uuid[] := ARRAY(SELECT retired.id FROM forebay.retired_execution retired ORDER BY retired.id LIMIT 100);
    v_roots uuid[];
    v_scanned uuid[];
    v_left int;
BEGIN
    IF v_ids <> '{}' THEN
        v_left := forebay_r1.retire_rows(v_ids, p_rows);
        DELETE FROM forebay.retired_execution retired
         WHERE retired.id = ANY (v_ids) AND (v_left > 0 OR NOT forebay_r1.retire_remains(retired.id));
        RETURN QUERY SELECT p_from, 0::bigint;
        RETURN;
    END IF;
    -- The descendants of a root are read too, so they count: one call reads about p_rows executions, and always at
    -- least one whole tree.
    v_scanned := ARRAY(
        SELECT scanned.id FROM (
            SELECT executions.id,
                   sum(1 + executions.descendants) OVER (ORDER BY executions.id) - executions.descendants AS rows_read
              FROM (SELECT execution.id, execution.descendants FROM forebay.workflow_execution execution
                     WHERE execution.id > p_from AND execution.id < v_before
                     ORDER BY execution.id
                     LIMIT p_scan) executions) scanned
         WHERE scanned.rows_read <= p_rows ORDER BY scanned.id);
    IF v_scanned = '{}' THEN
        RETURN QUERY SELECT NULL::uuid, 0::bigint;
        RETURN;
    END IF;
    v_roots := ARRAY(
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.id = ANY (v_scanned) AND execution.parent IS NULL AND execution.completed_at < v_old
           AND (execution.idempotency_key IS NULL
                OR execution.created_at < clock_timestamp() - make_interval(secs => p_keys_kept_s))
           AND NOT EXISTS (SELECT 1
                             FROM forebay.workflow_execution descendant
                            WHERE descendant.root = execution.id AND descendant.depth > 0
                              AND descendant.completed_at IS NULL)
         ORDER BY execution.id FOR UPDATE SKIP LOCKED);
    v_ids := v_roots || ARRAY(
        SELECT descendant.id FROM forebay.workflow_execution descendant
         WHERE descendant.id = ANY (v_scanned) AND descendant.parent IS NOT NULL AND descendant.completed_at IS NOT NULL
           AND (descendant.root = ANY (v_roots)
                OR NOT EXISTS (SELECT 1 FROM forebay.workflow_execution root WHERE root.id = descendant.root))
         ORDER BY descendant.id FOR UPDATE SKIP LOCKED);
    DELETE FROM forebay.execution_queue item WHERE item.id = ANY (v_ids) AND item.status = 'FAILED';
    WITH retired AS (
        DELETE FROM forebay.workflow_execution execution WHERE execution.id = ANY (v_ids)
        RETURNING execution.workspace_id, execution.status, execution.id)
    DELETE FROM forebay.execution_outcome outcome USING retired
     WHERE outcome.workspace_id = retired.workspace_id AND outcome.status = retired.status
       AND outcome.execution_id = retired.id;
    IF forebay_r1.retire_rows(v_ids, p_rows) = 0 THEN
        INSERT INTO forebay.retired_execution (id)
        SELECT deleted.id FROM unnest(v_ids) AS deleted(id) WHERE forebay_r1.retire_remains(deleted.id)
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
        SELECT projection.id, projection.created_at,
               coalesce(projection.completed_at, projection.failed_at) < v_old AND job.retry_from IS NULL AS due
          FROM public.workflow_queue_projection projection JOIN forebay.workflow_queue_job job ON job.id = projection.id
         WHERE projection.status = p_status AND projection.created_at < v_old AND projection.created_at >= p_from_at
           AND (projection.created_at, projection.id) > (p_from_at, p_from_id)
         ORDER BY projection.created_at, projection.id LIMIT p_scan)
    SELECT (array_agg(scanned.created_at ORDER BY scanned.created_at DESC, scanned.id DESC))[1] AS at,
           (array_agg(scanned.id ORDER BY scanned.created_at DESC, scanned.id DESC))[1] AS id,
           coalesce(array_agg(scanned.id) FILTER (WHERE scanned.due), '{}') AS due
      INTO v_last FROM scanned;
    IF v_last.id IS NULL THEN
        RETURN;
    END IF;
    v_ids := ARRAY(SELECT projection.id
                     FROM public.workflow_queue_projection projection
                    WHERE projection.id = ANY (v_last.due)
                    FOR UPDATE SKIP LOCKED);
    PERFORM set_config('forebay.projection', 'retention', true);
    DELETE FROM public.workflow_queue_projection projection
     WHERE projection.id = ANY (v_ids) AND projection.status = p_status;
    GET DIAGNOSTICS v_retired = ROW_COUNT;
    PERFORM set_config('forebay.projection', '', true);
    RETURN QUERY SELECT v_last.at, v_last.id, v_retired;
END $$;

CREATE FUNCTION forebay_r1.retire_remains(p_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    AS $$
    SELECT EXISTS (SELECT 1 FROM forebay.workflow_execution_node node WHERE node.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_wait wait WHERE wait.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_token token WHERE token.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_candidate candidate WHERE candidate.execution_id = p_id)
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
    DELETE FROM forebay.workflow_execution_node node
     WHERE node.ctid = ANY (ARRAY(SELECT found.ctid
                                    FROM forebay.workflow_execution_node found
                                   WHERE found.execution_id = ANY (p_ids)
                                   LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_wait wait
     WHERE wait.ctid = ANY (ARRAY(SELECT found.ctid
                                    FROM forebay.workflow_execution_wait found
                                   WHERE found.execution_id = ANY (p_ids)
                                   LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_token token
     WHERE token.ctid = ANY (ARRAY(SELECT found.ctid
                                     FROM forebay.workflow_execution_token found
                                    WHERE found.execution_id = ANY (p_ids)
                                    LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_candidate candidate
     WHERE candidate.ctid = ANY (ARRAY(SELECT found.ctid
                                         FROM forebay.workflow_execution_candidate found
                                        WHERE found.execution_id = ANY (p_ids)
                                        LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_left - v_gone;
END $$;

CREATE FUNCTION forebay_r1.retry_jobs(p_waits double precision[], p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    v_done int;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT projection.id
          FROM forebay.workflow_queue_job job
          JOIN public.workflow_queue_projection projection ON projection.id = job.id
         WHERE job.retry_from <= now() AND projection.status = 'failed'
           AND projection.retry_count < forebay.max_job_failures()
           AND job.retry_from + make_interval(secs => p_waits[projection.retry_count]) <= now()
         ORDER BY job.retry_from LIMIT p_limit FOR UPDATE OF projection SKIP LOCKED)
    UPDATE public.workflow_queue_projection projection
       SET status = 'pending'
      FROM due
     WHERE projection.id = due.id AND projection.status = 'failed';
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN v_done;
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
    WITH RECURSIVE ready_hop (workspace_id, hops) AS (
        (SELECT item.workspace_id, 1 FROM forebay.execution_queue item
          WHERE item.shard = p_shard AND item.stage = forebay.stage_ready() ORDER BY item.workspace_id LIMIT 1)
        UNION ALL
        SELECT next.workspace_id, hop.hops + 1 FROM ready_hop hop CROSS JOIN LATERAL (
            SELECT item.workspace_id FROM forebay.execution_queue item
             WHERE item.shard = p_shard AND item.stage = forebay.stage_ready() AND item.workspace_id > hop.workspace_id
             ORDER BY item.workspace_id LIMIT 1) next
         WHERE hop.hops < p_workspaces),
    slot_hop (workspace_id, hops) AS (
        (SELECT item.workspace_id, 1 FROM forebay.execution_queue item
          WHERE item.shard = p_shard AND item.claim_number IS NOT NULL ORDER BY item.workspace_id LIMIT 1)
        UNION ALL
        SELECT next.workspace_id, hop.hops + 1 FROM slot_hop hop CROSS JOIN LATERAL (
            SELECT item.workspace_id FROM forebay.execution_queue item
             WHERE item.shard = p_shard AND item.claim_number IS NOT NULL AND item.workspace_id > hop.workspace_id
             ORDER BY item.workspace_id LIMIT 1) next
         WHERE hop.hops < p_workspaces),
    busy AS (SELECT hop.workspace_id FROM ready_hop hop UNION SELECT hop.workspace_id FROM slot_hop hop),
    workspaces AS MATERIALIZED (
        SELECT known.id, coalesce(known.limit_override, tier.max_running) AS max_running,
               known.paused OR known.deleted_at IS NOT NULL AS closed
          FROM busy
         CROSS JOIN LATERAL (SELECT * FROM forebay.workspace WHERE workspace.id = busy.workspace_id LIMIT 1) known
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = known.tier LIMIT 1) tier),
    first_in_line AS MATERIALIZED (
        SELECT extract(epoch FROM clock_timestamp() - (
                   SELECT min(first.created_at) FROM generate_series(1, 5) AS level(priority) CROSS JOIN LATERAL (
                        SELECT item.created_at FROM forebay.execution_queue item
                         WHERE item.shard = p_shard AND item.workspace_id = hop.workspace_id
                           AND item.stage = forebay.stage_ready() AND item.priority = level.priority
                         ORDER BY item.rank, item.id LIMIT 1) first))::float8 AS age,
               NOT workspaces.closed AND (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue holder
                    WHERE holder.shard = p_shard AND holder.workspace_id = hop.workspace_id
                      AND holder.claim_number IS NOT NULL
                    LIMIT workspaces.max_running) counted) < workspaces.max_running AS has_slot
          FROM ready_hop hop JOIN workspaces ON workspaces.id = hop.workspace_id)
    SELECT (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.stage = forebay.stage_ready()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE p_shard = 0 AND item.stage = forebay.stage_delayed()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.stage = forebay.stage_waits_for_key()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.stage = forebay.stage_waits_for_definition()
                     LIMIT p_most) counted),
           (SELECT count(*)
              FROM (SELECT 1
                      FROM forebay.execution_queue item
                     WHERE item.shard = p_shard AND item.claim_number IS NOT NULL
                     LIMIT p_most) counted),
           (SELECT coalesce(sum(workspaces.max_running), 0)::bigint FROM workspaces),
           (SELECT coalesce(max(first_in_line.age), 0) FROM first_in_line WHERE first_in_line.has_slot),
           (SELECT coalesce(max(first_in_line.age), 0) FROM first_in_line WHERE NOT first_in_line.has_slot);
END $$;

CREATE FUNCTION forebay_r1.set_run_owner(p_id uuid, p_owner uuid) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    UPDATE forebay.execution_queue item SET owner = p_owner WHERE item.id = p_id AND item.status = 'DISPATCHED';
    DELETE FROM forebay.run_request request WHERE request.execution_id = p_id AND NOT request.ends;
    UPDATE forebay.run_request request SET owner = p_owner, wake_at = NULL
     WHERE request.execution_id = p_id AND request.ends;
END $$;

CREATE FUNCTION forebay_r1.start_attempts(p_executions uuid[], p_owners uuid[], p_epochs bigint[], p_nodes text[], p_iterations integer[], p_inputs jsonb[]) RETURNS TABLE(attempt_at bigint, held boolean, status text, label text, attempt integer, fence integer, next_in_ms bigint, error jsonb, begun boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    -- By position. The workspace is null if the run is not held.
    v_workspaces uuid[];
    v_begun boolean[];
BEGIN
    v_workspaces := forebay_r1.lock_held(p_executions, p_owners, p_epochs);
    v_begun := ARRAY(
        SELECT coalesce(node.status = 'RUNNING' AND node.once, false)
          FROM unnest(p_executions, p_nodes, p_iterations) WITH ORDINALITY AS given(execution_id, node, iteration, ord)
          -- LIMIT 1, here and below: always a primary-key probe, never a scan.
          LEFT JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_node stored
                WHERE stored.execution_id = given.execution_id AND stored.node = given.node
                  AND stored.iteration = given.iteration
                LIMIT 1) node ON true
         ORDER BY given.ord);
    INSERT INTO forebay.workflow_execution_node AS node (execution_id, node, iteration, workspace_id, status, attempt,
                                                         fence, input, started_at, once)
    SELECT given.execution_id, given.node, given.iteration, given.workspace_id, 'RUNNING', 1, 1, given.input,
           clock_timestamp(), false
      FROM unnest(p_executions, v_workspaces, p_nodes, p_iterations, p_inputs)
           AS given(execution_id, workspace_id, node, iteration, input)
     WHERE given.workspace_id IS NOT NULL
    ON CONFLICT (execution_id, node, iteration) DO UPDATE
       SET status = 'RUNNING', fence = node.fence + 1, input = coalesce(excluded.input, node.input),
           attempt = greatest(node.attempt, 1), started_at = coalesce(node.started_at, excluded.started_at),
           once = node.status = 'RUNNING' AND node.once,
           next_at = CASE WHEN node.status = 'RUNNING' THEN node.next_at END
     WHERE node.status IN ('PENDING', 'RUNNING') OR (node.status = 'RETRYING' AND node.next_at <= clock_timestamp());
    INSERT INTO forebay.change_log (topic, op, refs, workspaces)
    SELECT 'nodes', 'UPDATE', array_agg(moved.execution_id), array_agg(moved.workspace_id)
      FROM (SELECT DISTINCT given.execution_id, given.workspace_id
              FROM unnest(p_executions, v_workspaces) AS given(execution_id, workspace_id)
             WHERE given.workspace_id IS NOT NULL) moved
    HAVING count(*) > 0;
    RETURN QUERY
    SELECT given.ord, given.workspace_id IS NOT NULL, node.status, node.label, node.attempt, node.fence,
           (extract(epoch FROM node.next_at - clock_timestamp()) * 1000)::bigint, node.error, v_begun[given.ord]
      FROM unnest(p_executions, v_workspaces, p_nodes, p_iterations)
           WITH ORDINALITY AS given(execution_id, workspace_id, node, iteration, ord)
      LEFT JOIN LATERAL (
           SELECT * FROM forebay.workflow_execution_node stored
            WHERE stored.execution_id = given.execution_id AND stored.node = given.node
              AND stored.iteration = given.iteration
            LIMIT 1) node ON true;
END $$;

CREATE FUNCTION forebay_r1.start_jobs(p_ids uuid[], p_retries integer[], p_executions uuid[], p_workspaces uuid[], p_definitions uuid[], p_versions uuid[], p_inputs jsonb[], p_triggers jsonb[], p_workflow_ids text[], p_skip boolean[], p_errors text[], p_worker text, p_actor text, p_semantics integer, p_step_ms bigint, p_max_backlog integer) RETURNS TABLE(id uuid, answer text, execution uuid)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_claimed uuid[];
    v_moved uuid[];
    v_begun uuid[];
    v_full uuid[] := '{}';
BEGIN
    SELECT coalesce(array_agg(locked.id), '{}') INTO v_claimed FROM (
        SELECT projection.id
          FROM public.workflow_queue_projection projection
          JOIN unnest(p_ids, p_retries) AS requested(id, retries) ON requested.id = projection.id
         WHERE projection.status = 'pending' AND projection.retry_count = requested.retries
         ORDER BY projection.id FOR UPDATE OF projection SKIP LOCKED) locked;
    -- A job whose input was checked against a version that is no longer published stays unchanged.
    SELECT coalesce(array_agg(requested.id), '{}')
      INTO v_moved
      FROM unnest(p_ids, p_definitions, p_versions) AS requested(id, definition, version)
      JOIN forebay.workflow_definition definition ON definition.id = requested.definition
     WHERE requested.id = ANY (v_claimed) AND requested.version IS NOT NULL
       AND definition.published_version IS DISTINCT FROM requested.version;
    v_claimed := ARRAY(SELECT still.id FROM unnest(v_claimed) AS still(id) WHERE NOT still.id = ANY (v_moved));
    -- Only jobs that begin have an execution.
    SELECT coalesce(array_agg(requested.id), '{}')
      INTO v_begun
      FROM unnest(p_ids, p_skip, p_errors) AS requested(id, skip, error)
     WHERE requested.id = ANY (v_claimed) AND NOT requested.skip AND requested.error IS NULL;

    FOR v_job IN
        WITH starts AS MATERIALIZED (
            -- The key contains the job's id, not the event's: two workspaces may use the same event id, and a platform
            -- workflow runs for both.
            SELECT requested.*, 'event:' || projection.id || '/' || requested.retries AS key
              FROM unnest(p_ids, p_retries, p_executions, p_workspaces, p_definitions, p_versions, p_inputs, p_triggers,
                          p_workflow_ids)
                   AS requested(id, retries, execution, workspace, definition, version, input, trig, workflow_id)
              JOIN public.workflow_queue_projection projection ON projection.id = requested.id
             WHERE requested.id = ANY (v_begun)
             ORDER BY requested.id),
        batch AS MATERIALIZED (
            SELECT array_agg(starts.id) AS ids, array_agg(starts.execution) AS executions,
                   array_agg(starts.workspace) AS workspaces, array_agg(starts.definition) AS definitions,
                   array_agg(starts.input) AS inputs,
                   array_agg(forebay.default_priority()::smallint) AS priorities,
                   array_agg(NULL::timestamptz) AS run_at, array_agg(NULL::text) AS none, array_agg(starts.key) AS keys,
                   array_agg(sha256(convert_to(starts.key, 'UTF8'))) AS prints, array_agg(starts.trig) AS triggers,
                   array_agg(starts.version) AS versions, array_agg(NULL::uuid) AS nobody, array_agg(p_actor) AS actors,
                   array_agg(starts.workflow_id) AS workflow_ids
              FROM starts HAVING count(*) > 0)
        SELECT batch.ids[started.ord] AS id, started.outcome, started.execution,
               batch.workflow_ids[started.ord] AS workflow_id
          FROM batch
         CROSS JOIN LATERAL forebay.enqueue_many(batch.executions, batch.workspaces, batch.definitions, batch.inputs,
               batch.priorities, batch.run_at, batch.none, batch.keys, batch.prints, batch.triggers, batch.none,
               batch.versions, batch.nobody, batch.actors, p_semantics, p_step_ms, p_max_backlog, true) started
    LOOP
        IF v_job.outcome IN ('accepted', 'existing') THEN
            PERFORM forebay_r1.claim_job_for_projector(v_job.id, p_worker, v_job.execution,
                                        coalesce(v_job.workflow_id, 'execution-' || v_job.execution));
            RETURN QUERY SELECT v_job.id, 'started', v_job.execution;
        ELSIF v_job.outcome = 'backlog_full' THEN
            v_full := v_full || v_job.id;
            RETURN QUERY SELECT v_job.id, 'backlog_full', NULL::uuid;
        ELSE
            PERFORM forebay_r1.claim_job_for_projector(v_job.id, p_worker, gen_random_uuid(), NULL);
            PERFORM forebay_r1.finish_job(v_job.id, NULL,
                CASE v_job.outcome WHEN 'draft' THEN 'the definition was never published'
                                   ELSE 'the definition or its workspace was deleted' END,
                NULL, true);
            RETURN QUERY SELECT v_job.id, 'failed', NULL::uuid;
        END IF;
    END LOOP;

    FOR v_job IN
        SELECT requested.id, requested.error
          FROM unnest(p_ids, p_errors) AS requested(id, error)
         WHERE requested.id = ANY (v_claimed) AND NOT requested.id = ANY (v_begun)
    LOOP
        PERFORM forebay_r1.claim_job_for_projector(v_job.id, p_worker, gen_random_uuid(), NULL);
        PERFORM forebay_r1.finish_job(v_job.id, '{"skipped": true}', v_job.error, v_job.error, true);
        RETURN QUERY SELECT v_job.id, CASE WHEN v_job.error IS NULL THEN 'skipped' ELSE 'failed' END, NULL::uuid;
    END LOOP;
    RETURN QUERY
    SELECT requested.id, CASE WHEN requested.id = ANY (v_moved) THEN 'version_changed' ELSE 'lost' END, NULL::uuid
      FROM unnest(p_ids) AS requested(id)
     WHERE NOT requested.id = ANY (v_claimed);
    -- This changes one row per binding, however many jobs it delays. It comes last and skips locked rows, so it waits
    -- for no lock.
    UPDATE forebay.event_binding binding SET full_until = now() + interval '5 seconds'
     WHERE binding.id = ANY (ARRAY(
        SELECT binding.id FROM forebay.event_binding binding
         WHERE binding.id = ANY (ARRAY(SELECT job.binding_id
                                         FROM forebay.workflow_queue_job job
                                        WHERE job.id = ANY (v_full)))
           FOR UPDATE SKIP LOCKED));
END $$;

CREATE FUNCTION forebay_r1.stream_version(p_workspace uuid, p_stream uuid, p_stream_type text) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(
        CASE WHEN p_workspace IS NULL
             THEN (SELECT event.stream_version FROM public.domain_events event
                    WHERE event.stream_id = p_stream AND event.stream_type = p_stream_type
                      AND event.workspace_id IS NULL
                    ORDER BY event.workspace_id DESC, event.stream_version DESC LIMIT 1)
             ELSE (SELECT event.stream_version FROM public.domain_events event
                    WHERE event.stream_id = p_stream AND event.stream_type = p_stream_type
                      AND event.workspace_id = p_workspace
                    ORDER BY event.stream_version DESC LIMIT 1) END, 0)
$$;

CREATE FUNCTION forebay_r1.time_of(p_id uuid) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT 'epoch'::timestamptz
           + (('x' || replace(left(p_id::text, 13), '-', ''))::bit(48)::bigint) * interval '1 millisecond'
$$;

CREATE FUNCTION forebay_r1.waiting_ids(p_workspace uuid, p_most bigint) RETURNS SETOF uuid
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    SELECT item.id FROM unnest(ARRAY[forebay.stage_ready(), forebay.stage_delayed(), forebay.stage_waits_for_key(),
                                     forebay.stage_waits_for_definition()]) AS waiting(stage)
     CROSS JOIN LATERAL (
        SELECT ready.id FROM forebay.execution_queue ready
         WHERE waiting.stage = forebay.stage_ready() AND ready.stage = forebay.stage_ready()
           AND ready.shard = forebay.shard_of(p_workspace)::smallint AND ready.workspace_id = p_workspace
        UNION ALL
        SELECT delayed.id FROM forebay.execution_queue delayed
         WHERE waiting.stage = forebay.stage_delayed() AND delayed.stage = forebay.stage_delayed()
           AND delayed.shard = forebay.shard_of(p_workspace)::smallint AND delayed.workspace_id = p_workspace
        UNION ALL
        SELECT keyed.id FROM forebay.execution_queue keyed
         WHERE waiting.stage = forebay.stage_waits_for_key() AND keyed.stage = forebay.stage_waits_for_key()
           AND keyed.shard = forebay.shard_of(p_workspace)::smallint AND keyed.workspace_id = p_workspace
        UNION ALL
        SELECT limited.id FROM forebay.execution_queue limited
         WHERE waiting.stage = forebay.stage_waits_for_definition()
           AND limited.stage = forebay.stage_waits_for_definition()
           AND limited.shard = forebay.shard_of(p_workspace)::smallint AND limited.workspace_id = p_workspace) item
     LIMIT p_most
$$;

CREATE FUNCTION forebay_r1.wake_run(p_holder uuid) RETURNS text
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
    INSERT INTO forebay.run_request AS known (execution_id, root, engine, owner, wake_at)
    SELECT execution.id, coalesce(execution.root, execution.id), execution.engine, execution.owner, clock_timestamp()
      FROM forebay.workflow_execution execution WHERE execution.id = p_holder AND execution.status = 'RUNNING'
    ON CONFLICT (execution_id) DO UPDATE
       SET owner = excluded.owner, wake_at = least(known.wake_at, excluded.wake_at)
    RETURNING known.engine
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

CREATE TABLE forebay.workflow_execution (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    version_id uuid NOT NULL,
    root uuid,
    parent uuid,
    rerun_of uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    timeout_ms bigint,
    semantics integer NOT NULL,
    parent_iteration integer,
    parent_attempt integer,
    depth smallint DEFAULT 0 NOT NULL,
    priority smallint DEFAULT 3 NOT NULL,
    parent_node text,
    trigger jsonb DEFAULT '{}'::jsonb NOT NULL,
    actor text,
    input jsonb,
    concurrency_key text,
    idempotency_key text,
    fingerprint bytea,
    trace_context text,
    deadline_at timestamp with time zone NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    engine text,
    engine_run_id text,
    engine_location text,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    duration_ms bigint,
    owner uuid,
    owner_epoch bigint DEFAULT 0 NOT NULL,
    last_seq bigint DEFAULT 0 NOT NULL,
    output jsonb,
    error jsonb,
    cancel_requested_at timestamp with time zone,
    terminate_requested_at timestamp with time zone,
    deaths integer DEFAULT 0 NOT NULL,
    deaths_seq bigint,
    alone boolean DEFAULT false NOT NULL,
    descendants integer DEFAULT 0 NOT NULL,
    tree_seq bigint DEFAULT 0 NOT NULL,
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
WITH (fillfactor='40', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_insert_scale_factor='0.05');

CREATE VIEW forebay.execution_start AS
 SELECT execution.id,
    execution.created_at AS at,
    execution.workspace_id,
    COALESCE(execution.actor, (execution.trigger ->> 'actor'::text)) AS actor,
        CASE
            WHEN (execution.rerun_of IS NULL) THEN 'execution.start'::text
            ELSE 'execution.rerun'::text
        END AS action,
    'execution'::text AS subject_type,
    execution.id AS subject_id,
        CASE
            WHEN (execution.rerun_of IS NOT NULL) THEN jsonb_build_object('of', execution.rerun_of)
            ELSE NULL::jsonb
        END AS detail
   FROM forebay.workflow_execution execution
  WHERE (execution.depth = 0);

CREATE VIEW forebay.audit AS
 SELECT activity.at,
    activity.workspace_id,
    activity.actor,
    activity.action,
    activity.subject_type,
    activity.subject_id,
    activity.detail
   FROM forebay.activity
UNION ALL
 SELECT start.at,
    start.workspace_id,
    start.actor,
    start.action,
    start.subject_type,
    start.subject_id,
    start.detail
   FROM forebay.execution_start start;

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
    CONSTRAINT change_log_check CHECK (((topic <> 'job'::text) OR (cardinality(refs) = 1))),
    CONSTRAINT change_log_op_check CHECK ((op = ANY (ARRAY['INSERT'::text, 'UPDATE'::text, 'DELETE'::text]))),
    CONSTRAINT change_log_topic_check CHECK ((topic = ANY (ARRAY['execution'::text, 'nodes'::text, 'job'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05');

CREATE UNLOGGED TABLE forebay.change_log_pruned (
    one boolean DEFAULT true NOT NULL,
    pruned_xid xid8 NOT NULL,
    CONSTRAINT change_log_pruned_one_check CHECK (one)
);

ALTER TABLE forebay.change_log ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME forebay.change_log_seq_seq
    START WITH 1048576
    INCREMENT BY 1048576
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE forebay.claim_mark (
    workspace_id uuid NOT NULL,
    ready_from bigint[] DEFAULT '{0,0,0,0,0}'::bigint[] NOT NULL,
    slots_after bigint DEFAULT 0 NOT NULL,
    slots_known bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    CONSTRAINT claim_mark_ready_from_check CHECK ((cardinality(ready_from) = 5))
)
WITH (fillfactor='20');

CREATE SEQUENCE forebay.claim_number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

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

CREATE TABLE forebay.execution_outcome (
    workspace_id uuid NOT NULL,
    status text NOT NULL,
    execution_id uuid NOT NULL,
    CONSTRAINT execution_outcome_status_check CHECK ((status = ANY (ARRAY['FAILED'::text, 'CANCELED'::text, 'TIMED_OUT'::text])))
);

CREATE TABLE forebay.execution_queue (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    rank bigint NOT NULL,
    claim_number bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    available_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deadline_at timestamp with time zone DEFAULT 'infinity'::timestamp with time zone NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    takeover_count integer DEFAULT 0 NOT NULL,
    shard smallint GENERATED ALWAYS AS (forebay.shard_of(workspace_id)) STORED,
    priority smallint DEFAULT 3 NOT NULL,
    stage smallint DEFAULT 0 NOT NULL,
    limited boolean DEFAULT false NOT NULL,
    in_doubt boolean DEFAULT false NOT NULL,
    concurrency_key text,
    status text DEFAULT 'PENDING'::text NOT NULL,
    claim_id uuid,
    claimed_by uuid,
    owner uuid,
    claimed_at timestamp with time zone,
    dispatched_at timestamp with time zone,
    last_error text,
    CONSTRAINT execution_queue_check CHECK ((((priority >= 1) AND (priority <= 5)) AND ((stage <> 2) OR (concurrency_key IS NOT NULL)) AND ((stage = 5) = (claim_number IS NOT NULL)) AND (claim_number > 0) AND
CASE status
    WHEN 'PENDING'::text THEN ((stage = ANY (ARRAY[0, 1, 2, 3])) AND (claim_id IS NULL) AND (claimed_by IS NULL) AND (claimed_at IS NULL) AND (dispatched_at IS NULL) AND (owner IS NULL))
    WHEN 'CLAIMED'::text THEN ((stage = 5) AND (claim_id IS NOT NULL) AND (claimed_by IS NOT NULL) AND (claimed_at IS NOT NULL) AND (dispatched_at IS NULL) AND (owner IS NULL))
    WHEN 'DISPATCHED'::text THEN ((stage = 5) AND (claim_id IS NOT NULL) AND (claimed_by IS NOT NULL) AND (claimed_at IS NOT NULL) AND (dispatched_at IS NOT NULL))
    WHEN 'FAILED'::text THEN ((stage = 9) AND (last_error IS NOT NULL) AND (owner IS NULL))
    ELSE false
END))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='100000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE forebay.process (
    id uuid NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    roles text[] NOT NULL,
    version text NOT NULL,
    release integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
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

CREATE TABLE forebay.run_request (
    execution_id uuid NOT NULL,
    root uuid NOT NULL,
    engine text NOT NULL,
    owner uuid,
    wake_at timestamp with time zone,
    ends boolean DEFAULT false NOT NULL,
    CONSTRAINT run_request_check CHECK (((wake_at IS NOT NULL) OR ends))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05');

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

CREATE TABLE forebay.trigger (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    rule jsonb NOT NULL,
    token_hash bytea,
    token_prefix text,
    previous_hash bytea,
    previous_expires_at timestamp with time zone,
    rotated_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT trigger_check CHECK (((token_hash IS NULL) = (token_prefix IS NULL))),
    CONSTRAINT trigger_check1 CHECK (((previous_hash IS NULL) = (previous_expires_at IS NULL)))
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
    execution_queue.id AS execution_id,
    execution_queue.status,
    execution_queue.stage,
    execution_queue.shard,
    execution_queue.priority,
    execution_queue.rank,
    execution_queue.attempt_count,
    execution_queue.takeover_count,
    execution_queue.created_at,
    execution_queue.available_at,
    execution_queue.deadline_at,
    execution_queue.claim_id,
    execution_queue.claimed_by,
    execution_queue.claimed_at,
    execution_queue.dispatched_at,
    execution_queue.owner,
    execution_queue.concurrency_key,
    execution_queue.limited,
    execution_queue.in_doubt,
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

ALTER TABLE ONLY forebay.change_log
    ADD CONSTRAINT change_log_pkey PRIMARY KEY (xid, seq);

ALTER TABLE ONLY forebay.change_log_pruned
    ADD CONSTRAINT change_log_pruned_pkey PRIMARY KEY (one);

ALTER TABLE ONLY forebay.claim_mark
    ADD CONSTRAINT claim_mark_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY forebay.event_binding
    ADD CONSTRAINT event_binding_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.event_secret
    ADD CONSTRAINT event_secret_pkey PRIMARY KEY (one);

ALTER TABLE ONLY forebay.execution_outcome
    ADD CONSTRAINT execution_outcome_pkey PRIMARY KEY (workspace_id, status, execution_id);

ALTER TABLE ONLY forebay.execution_queue
    ADD CONSTRAINT execution_queue_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.process
    ADD CONSTRAINT process_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.protocol
    ADD CONSTRAINT protocol_pkey PRIMARY KEY (one);

ALTER TABLE ONLY forebay.release
    ADD CONSTRAINT release_pkey PRIMARY KEY (number);

ALTER TABLE ONLY forebay.retired_execution
    ADD CONSTRAINT retired_execution_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.run_request
    ADD CONSTRAINT run_request_pkey PRIMARY KEY (execution_id);

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

ALTER TABLE ONLY forebay.trigger
    ADD CONSTRAINT trigger_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.trigger
    ADD CONSTRAINT trigger_previous_hash_key UNIQUE (previous_hash);

ALTER TABLE ONLY forebay.trigger
    ADD CONSTRAINT trigger_token_hash_key UNIQUE (token_hash);

ALTER TABLE ONLY forebay.trigger
    ADD CONSTRAINT trigger_workflow_definition_id_key UNIQUE (workflow_definition_id);

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

ALTER TABLE ONLY forebay.workflow_execution_candidate
    ADD CONSTRAINT workflow_execution_candidate_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.workflow_execution_node
    ADD CONSTRAINT workflow_execution_node_pkey PRIMARY KEY (execution_id, node, iteration);

ALTER TABLE ONLY forebay.workflow_execution
    ADD CONSTRAINT workflow_execution_pkey PRIMARY KEY (id);

ALTER TABLE ONLY forebay.workflow_execution_token
    ADD CONSTRAINT workflow_execution_token_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY forebay.workflow_execution_wait
    ADD CONSTRAINT workflow_execution_wait_id_key UNIQUE (id);

ALTER TABLE ONLY forebay.workflow_execution_wait
    ADD CONSTRAINT workflow_execution_wait_pkey PRIMARY KEY (execution_id, node, iteration);

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

CREATE INDEX execution_outcome_of_all ON forebay.execution_outcome USING btree (status, execution_id);

CREATE INDEX execution_queue_claimed ON forebay.execution_queue USING btree (shard, id) WHERE (status = 'CLAIMED'::text);

CREATE INDEX execution_queue_dead_letter ON forebay.execution_queue USING btree (id) WHERE (stage = 9);

CREATE INDEX execution_queue_dead_letter_by_definition ON forebay.execution_queue USING btree (workflow_definition_id, id) WHERE (stage = 9);

CREATE INDEX execution_queue_dead_letter_by_workspace ON forebay.execution_queue USING btree (workspace_id, id) WHERE (stage = 9);

CREATE INDEX execution_queue_deadline ON forebay.execution_queue USING btree (deadline_at) WHERE ((owner IS NULL) AND (stage < 9));

CREATE INDEX execution_queue_definition ON forebay.execution_queue USING btree (shard, workspace_id, workflow_definition_id, rank, id) WHERE (stage = 3);

CREATE INDEX execution_queue_delayed ON forebay.execution_queue USING btree (shard, workspace_id, workflow_definition_id) WHERE (stage = 1);

CREATE INDEX execution_queue_due ON forebay.execution_queue USING btree (available_at) WHERE (stage = 1);

CREATE INDEX execution_queue_key ON forebay.execution_queue USING btree (shard, workspace_id, workflow_definition_id, concurrency_key, rank, id) WHERE (stage = 2);

CREATE INDEX execution_queue_keyed ON forebay.execution_queue USING btree (workspace_id, workflow_definition_id, concurrency_key) WHERE ((concurrency_key IS NOT NULL) AND (stage = ANY (ARRAY[0, 3, 5])));

CREATE INDEX execution_queue_limited ON forebay.execution_queue USING btree (workspace_id, workflow_definition_id) WHERE (limited AND (stage = ANY (ARRAY[0, 5])));

CREATE INDEX execution_queue_owned ON forebay.execution_queue USING btree (owner, id) WHERE (stage = 5);

CREATE INDEX execution_queue_ready ON forebay.execution_queue USING btree (shard, workspace_id, priority, rank, id) WHERE (stage = 0);

CREATE INDEX execution_queue_slot ON forebay.execution_queue USING btree (shard, workspace_id, claim_number) WHERE (claim_number IS NOT NULL);

CREATE INDEX run_request_below ON forebay.run_request USING btree (root) WHERE (execution_id <> root);

CREATE INDEX run_request_due ON forebay.run_request USING btree (engine, wake_at) WHERE (wake_at IS NOT NULL);

CREATE INDEX run_request_of_owner ON forebay.run_request USING btree (owner) WHERE (owner IS NOT NULL);

CREATE INDEX schedule_buffered ON forebay.schedule USING btree (id) WHERE ((status = 'ACTIVE'::text) AND (buffered_at IS NOT NULL));

CREATE INDEX schedule_due ON forebay.schedule USING btree (GREATEST(next_at, retry_at), id) WHERE (status = 'ACTIVE'::text);

CREATE INDEX schedule_ended ON forebay.schedule USING btree (updated_at) WHERE (status = 'ENDED'::text);

CREATE INDEX schedule_of_definition ON forebay.schedule USING btree (workflow_definition_id);

CREATE UNIQUE INDEX schedule_of_document ON forebay.schedule USING btree (workflow_definition_id, cron, timezone) WHERE by_definition;

CREATE INDEX schedule_of_workspace ON forebay.schedule USING btree (workspace_id, id);

CREATE INDEX schedule_tick_started ON forebay.schedule_tick USING btree (schedule_id, tick_at) WHERE (status = 'STARTED'::text);

CREATE INDEX secret_of_key ON forebay.secret USING btree (key_id);

CREATE INDEX trigger_of_workspace ON forebay.trigger USING btree (workspace_id, id);

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

CREATE INDEX workflow_execution_below ON forebay.workflow_execution USING btree (root) WHERE (depth > 0);

CREATE INDEX workflow_execution_candidate_claimed ON forebay.workflow_execution_candidate USING btree (claimed_by) WHERE (claimed_by IS NOT NULL);

CREATE INDEX workflow_execution_candidate_of ON forebay.workflow_execution_candidate USING btree (execution_id) WHERE (execution_id IS NOT NULL);

CREATE INDEX workflow_execution_candidate_turn ON forebay.workflow_execution_candidate USING btree (workspace_id, id);

CREATE UNIQUE INDEX workflow_execution_child ON forebay.workflow_execution USING btree (parent, parent_node, parent_iteration, parent_attempt) WHERE (parent IS NOT NULL);

CREATE UNIQUE INDEX workflow_execution_idempotency ON forebay.workflow_execution USING btree (workspace_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);

CREATE INDEX workflow_execution_of_all ON forebay.workflow_execution USING btree (id) WHERE (depth = 0);

CREATE INDEX workflow_execution_of_definition ON forebay.workflow_execution USING btree (workflow_definition_id, id) WHERE (depth = 0);

CREATE INDEX workflow_execution_of_workspace ON forebay.workflow_execution USING btree (workspace_id, id) WHERE (depth = 0);

CREATE INDEX workflow_execution_token_of ON forebay.workflow_execution_token USING btree (execution_id, node, iteration);

CREATE INDEX workflow_execution_wait_event ON forebay.workflow_execution_wait USING btree (workspace_id, event_type, id) WHERE ((status = 'OPEN'::text) AND (event_type IS NOT NULL));

CREATE INDEX workflow_execution_wait_expiry ON forebay.workflow_execution_wait USING btree (expires_at) WHERE ((status = ANY (ARRAY['OPEN'::text, 'CLAIMED'::text])) AND (expires_at IS NOT NULL));

CREATE INDEX workflow_execution_wait_lease ON forebay.workflow_execution_wait USING btree (lease_until) WHERE (status = 'CLAIMED'::text);

CREATE INDEX workflow_execution_wait_offer ON forebay.workflow_execution_wait USING btree (queue, workspace_id, opened_at, id) WHERE ((status = 'OPEN'::text) AND (kind = 'TASK'::text));

CREATE INDEX workflow_execution_wait_open ON forebay.workflow_execution_wait USING btree (holder, expires_at) WHERE (status = ANY (ARRAY['OPEN'::text, 'CLAIMED'::text]));

CREATE INDEX workflow_execution_wait_recheck ON forebay.workflow_execution_wait USING btree (recheck_xid) WHERE recheck;

CREATE INDEX workflow_execution_wait_task ON forebay.workflow_execution_wait USING btree (id) WHERE (kind = 'TASK'::text);

CREATE INDEX workflow_execution_wait_task_of ON forebay.workflow_execution_wait USING btree (workspace_id, id) WHERE (kind = 'TASK'::text);

CREATE INDEX workflow_execution_wait_unread ON forebay.workflow_execution_wait USING btree (holder) WHERE ((read_at IS NULL) AND (status = ANY (ARRAY['ANSWERED'::text, 'EXPIRED'::text])));

CREATE INDEX workflow_queue_job_claim ON forebay.workflow_queue_job USING btree (claim_id) WHERE (claim_id IS NOT NULL);

CREATE UNIQUE INDEX workflow_queue_job_event ON forebay.workflow_queue_job USING btree (event_id, event_workspace_id) NULLS NOT DISTINCT WHERE (event_id IS NOT NULL);

CREATE INDEX workflow_queue_job_lease ON forebay.workflow_queue_job USING btree (lease_until) WHERE (lease_until IS NOT NULL);

CREATE INDEX workflow_queue_job_of_binding ON forebay.workflow_queue_job USING btree (binding_id, due_at, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_of_type ON forebay.workflow_queue_job USING btree (event_type, pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_of_workspace ON forebay.workflow_queue_job USING btree (workspace_id, id);

CREATE INDEX workflow_queue_job_of_workspace_type ON forebay.workflow_queue_job USING btree (workspace_id, event_type, pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_pending ON forebay.workflow_queue_job USING btree (pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_pending_of ON forebay.workflow_queue_job USING btree (workspace_id, pending_since, id) WHERE (pending_since IS NOT NULL);

CREATE INDEX workflow_queue_job_projector ON forebay.workflow_queue_job USING btree (id) WHERE (claimed_via = 'projector'::text);

CREATE INDEX workflow_queue_job_retry ON forebay.workflow_queue_job USING btree (retry_from) WHERE (retry_from IS NOT NULL);

CREATE UNIQUE INDEX workspace_living_name ON forebay.workspace USING btree (name) WHERE (deleted_at IS NULL);

CREATE INDEX domain_events_by_type ON public.domain_events USING btree (event_type, sequence);

CREATE INDEX domain_events_by_workspace ON public.domain_events USING btree (workspace_id, sequence);

CREATE INDEX domain_events_failed ON public.domain_events USING btree (sequence) WHERE (processing_error IS NOT NULL);

CREATE INDEX domain_events_failed_of_workspace ON public.domain_events USING btree (workspace_id, sequence) WHERE (processing_error IS NOT NULL);

CREATE INDEX domain_events_of_type ON public.domain_events USING btree (workspace_id, event_type, created_at, sequence) WHERE (stream_type <> 'workflow_queue'::text);

CREATE INDEX domain_events_of_workspace_type ON public.domain_events USING btree (workspace_id, event_type, sequence);

CREATE INDEX domain_events_to_fold ON public.domain_events USING btree (processing_failed_at) WHERE ("left"(processing_error, 2) = ANY (ARRAY['08'::text, '25'::text, '40'::text, '53'::text, '55'::text, '57'::text, '58'::text]));

CREATE INDEX workflow_queue_projection_created ON public.workflow_queue_projection USING btree (created_at);

CREATE INDEX workflow_queue_projection_event ON public.workflow_queue_projection USING btree (event_id);

CREATE INDEX workflow_queue_projection_status ON public.workflow_queue_projection USING btree (status, created_at);

CREATE INDEX workflow_queue_projection_stream ON public.workflow_queue_projection USING btree (stream_id, created_at);

CREATE TRIGGER lock_limit_change BEFORE UPDATE OF max_running ON forebay.tier FOR EACH ROW EXECUTE FUNCTION forebay.lock_limit_change();

CREATE TRIGGER lock_limit_change BEFORE UPDATE OF status, concurrency, key_concurrency, deleted_at ON forebay.workflow_definition FOR EACH ROW EXECUTE FUNCTION forebay.lock_limit_change();

CREATE TRIGGER lock_limit_change BEFORE UPDATE OF tier, limit_override, paused, deleted_at ON forebay.workspace FOR EACH ROW EXECUTE FUNCTION forebay.lock_limit_change();

CREATE TRIGGER forebay_bound BEFORE INSERT ON public.domain_events FOR EACH ROW WHEN ((new.stream_type <> 'workflow_queue'::text)) EXECUTE FUNCTION forebay.set_event_bound();

CREATE TRIGGER forebay_changed AFTER INSERT OR DELETE OR UPDATE ON public.workflow_queue_projection FOR EACH ROW EXECUTE FUNCTION forebay.job_changed();

CREATE TRIGGER forebay_facts BEFORE INSERT ON public.domain_events FOR EACH ROW WHEN ((new.stream_type = 'workflow_queue'::text)) EXECUTE FUNCTION forebay.fact_guard();

CREATE TRIGGER forebay_fold AFTER INSERT ON public.domain_events FOR EACH ROW WHEN ((new.stream_type <> 'workflow_queue'::text)) EXECUTE FUNCTION forebay.fold_new_event();

CREATE TRIGGER forebay_guard BEFORE DELETE OR UPDATE OF id, sequence, workspace_id, stream_id, stream_type, stream_version, event_type, event_data, event_metadata, created_at ON public.domain_events FOR EACH ROW EXECUTE FUNCTION forebay.event_guard();

CREATE TRIGGER forebay_guard BEFORE INSERT OR DELETE OR UPDATE ON public.workflow_queue_projection FOR EACH ROW EXECUTE FUNCTION forebay.job_guard();

CREATE TRIGGER forebay_match AFTER INSERT ON public.domain_events FOR EACH ROW WHEN (((new.stream_type <> 'workflow_queue'::text) AND (new.workspace_id IS NOT NULL))) EXECUTE FUNCTION forebay.add_event_candidate();

CREATE TRIGGER forebay_truncate BEFORE TRUNCATE ON public.domain_events FOR EACH STATEMENT EXECUTE FUNCTION forebay.event_guard();

CREATE TRIGGER forebay_truncate BEFORE TRUNCATE ON public.workflow_queue_projection FOR EACH STATEMENT EXECUTE FUNCTION forebay.job_truncate();

CREATE TRIGGER workflow_queue_projection_logged AFTER INSERT OR DELETE OR UPDATE ON public.workflow_queue_projection FOR EACH ROW EXECUTE FUNCTION forebay.log_projection();

ALTER TABLE ONLY forebay.api_key
    ADD CONSTRAINT api_key_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.event_binding
    ADD CONSTRAINT event_binding_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.event_binding
    ADD CONSTRAINT event_binding_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.schedule_tick
    ADD CONSTRAINT schedule_tick_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES forebay.schedule(id) ON DELETE CASCADE;

ALTER TABLE ONLY forebay.schedule
    ADD CONSTRAINT schedule_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.schedule
    ADD CONSTRAINT schedule_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.secret
    ADD CONSTRAINT secret_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

ALTER TABLE ONLY forebay.trigger
    ADD CONSTRAINT trigger_workflow_definition_id_fkey FOREIGN KEY (workflow_definition_id) REFERENCES forebay.workflow_definition(id);

ALTER TABLE ONLY forebay.trigger
    ADD CONSTRAINT trigger_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES forebay.workspace(id);

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
