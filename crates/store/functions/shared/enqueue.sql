-- Accepts starts: execution, queue item and audit row in one commit. Repeatable by id and by
-- idempotency key. Each row is answered on its own, in the order given:
-- accepted, existing (same key, same content: its id), conflict (same key, other content),
-- not_found (no such living definition in that workspace), draft (never published), full (its
-- workspace's backlog has no room: nothing of it is stored).
--
-- p_versions pins another version than the published one, p_reruns names the execution it repeats;
-- p_max_backlog is the limit of workspaces that have none of their own; where it is null too, the tier's
-- holds. The tier's limit is not checked without p_keep_count (`forebay.enqueue`): a large backlog is cheap to count
-- only if the count is kept, and keeping it would lock a row until the caller's transaction ends.
CREATE OR REPLACE FUNCTION forebay.enqueue_many(
    p_ids uuid[], p_workspaces uuid[], p_definitions uuid[], p_inputs jsonb[], p_priorities smallint[],
    p_run_at timestamptz[], p_keys text[], p_idempotency text[], p_fingerprints bytea[], p_triggers jsonb[],
    p_traces text[], p_versions uuid[], p_reruns uuid[], p_actor text, p_semantics int, p_step_ms bigint,
    p_max_backlog int, p_keep_count boolean)
RETURNS TABLE (ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
-- A first request with the same key that is still under way is waited for, but not for long.
SET lock_timeout = '2s'
AS $fn$
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
                (SELECT tier.max_backlog
                   FROM forebay.tier
                  WHERE tier.name = known.tier AND p_keep_count)) AS max_backlog) allowed
         WHERE allowed.max_backlog IS NOT NULL),
    with_room AS MATERIALIZED (
        SELECT limited.workspace_id,
               forebay.backlog_room(limited.workspace_id, limited.max_backlog, limited.starts, p_keep_count) AS room
          FROM limited ORDER BY limited.workspace_id)
    SELECT coalesce(array_agg(start.id), '{}') INTO v_refused
      FROM (SELECT asked.id, asked.workspace_id,
                   row_number() OVER (PARTITION BY asked.workspace_id ORDER BY asked.ord) AS place
              FROM unnest(p_ids, p_workspaces) WITH ORDINALITY AS asked(id, workspace_id, ord)) start
      JOIN with_room ON with_room.workspace_id = start.workspace_id AND start.place > with_room.room;

    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_ids, p_workspaces, p_definitions, p_inputs, p_run_at, p_priorities, p_keys,
                             p_idempotency, p_fingerprints, p_triggers, p_traces, p_versions, p_reruns) WITH ORDINALITY
            AS start(id, workspace_id, definition_id, input, run_at, priority, key, idempotency, fingerprint, trig,
                     trace, version, rerun_of, ord)),
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
                              WHERE known.id = meant.workspace_id AND known.deleted_at IS NULL
                              LIMIT 1) of_living_workspace
         CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_definition_version version
                              WHERE version.id = coalesce(meant.version, living.published_version)
                                AND version.workflow_definition_id = living.id LIMIT 1) pinned
         WHERE living.status <> 'DRAFT'),
    startable AS MATERIALIZED (
        SELECT asked.*, versions.version_id, versions.timeout_ms, versions.limited
          FROM asked
          JOIN versions ON versions.workspace_id = asked.workspace_id AND versions.definition_id = asked.definition_id
                                  AND versions.version IS NOT DISTINCT FROM asked.version
         WHERE NOT asked.id = ANY (v_refused)),
    executions AS (
        INSERT INTO forebay.workflow_execution (id, workspace_id, workflow_definition_id, version_id, semantics,
            trigger, input, priority, concurrency_key, idempotency_key, fingerprint, timeout_ms, created_at,
            deadline_at, trace_context, root, rerun_of)
        SELECT start.id, start.workspace_id, start.definition_id, start.version_id, p_semantics,
               coalesce(start.trig, '{}'), start.input, start.priority, start.key, start.idempotency, start.fingerprint,
               start.timeout_ms, v_now, greatest(coalesce(start.run_at, v_now), v_now) + forebay.longest_execution(),
               start.trace, start.id, start.rerun_of
          -- Calls that share keys wait for each other in one order; of two equals in a call the first is accepted.
          FROM startable start ORDER BY start.workspace_id, start.idempotency, start.ord
        ON CONFLICT DO NOTHING
        RETURNING id),
    accepted AS MATERIALIZED (
        SELECT startable.* FROM startable WHERE startable.id = ANY (ARRAY(SELECT executions.id FROM executions))),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT start.workspace_id, p_actor,
               CASE WHEN start.rerun_of IS NULL THEN 'execution.start' ELSE 'execution.rerun' END, 'execution',
               start.id, CASE WHEN start.rerun_of IS NOT NULL THEN jsonb_build_object('of', start.rerun_of) END
          FROM accepted start),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'INSERT', array_agg(start.id), array_agg(start.workspace_id), 'PENDING'
          FROM accepted start HAVING count(*) > 0),
    queued AS (
        INSERT INTO forebay.execution_queue (id, workspace_id, workflow_definition_id, execution_id, priority,
            created_at, available_at, rank, gated, stage, concurrency_key)
        SELECT start.id, start.workspace_id, start.definition_id, start.id, start.priority, v_now,
               coalesce(start.run_at, v_now),
               (extract(epoch FROM v_now) * 1000)::bigint + (start.priority - 3) * p_step_ms,
               start.key IS NOT NULL OR start.limited, CASE WHEN start.run_at > v_now THEN forebay.stage_delayed()
                    WHEN start.key IS NOT NULL THEN forebay.stage_waits_for_key()
                    WHEN start.limited THEN forebay.stage_waits_for_definition()
                    ELSE forebay.stage_ready() END,
               start.key
          FROM accepted start
        RETURNING id, stage, gated)
    SELECT coalesce(array_agg(queued.id), '{}') AS ids, bool_or(queued.gated) AS gated, min(queued.stage) AS least,
           max(queued.stage) AS most
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
                WHEN earlier.id IS NOT NULL AND earlier.fingerprint IS NOT DISTINCT FROM asked.fingerprint
                THEN 'existing'
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
             ON definition.id = asked.definition_id AND definition.workspace_id = asked.workspace_id
           AND definition.deleted_at IS NULL
     ORDER BY asked.ord;
END $fn$;

-- For other programs, inside their own transaction: one start. Returns the execution's id, which is
-- also the queue item's. Ids are UUIDv7, made here from the database's clock. Runs with its owner's rights: whoever may
-- call it needs no right on any table, and the audit row names who is connected.
CREATE OR REPLACE FUNCTION forebay.enqueue(
    workspace uuid, definition uuid, input jsonb DEFAULT NULL, priority int DEFAULT 3,
    run_at timestamptz DEFAULT NULL, concurrency_key text DEFAULT NULL, idempotency_key text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
    new_id uuid := forebay.new_id();
    answer record;
BEGIN
    -- The same forms as kernel::queue::idempotency: keys that hooks, schedules, nodes and jobs derive.
    IF idempotency_key ~ '^(hook/|schedule:|node/|event:)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}/' THEN
        RAISE EXCEPTION 'idempotency key %: this service derives keys of that form itself, choose another',
            quote_literal(idempotency_key)
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
        ARRAY['{"type": "sql"}'::jsonb], ARRAY[NULL::text], ARRAY[NULL::uuid], ARRAY[NULL::uuid],
        'sql:' || forebay.caller(), forebay.semantics(), forebay.priority_step_ms(), NULL, false);
    IF answer.outcome IN ('accepted', 'existing') THEN
        RETURN answer.execution;
    END IF;
    RAISE EXCEPTION '%', CASE answer.outcome
        WHEN 'conflict' THEN format('idempotency key %L was used with other content', idempotency_key)
        WHEN 'draft' THEN format('definition %s is not published', definition)
        WHEN 'full' THEN format('the backlog of workspace %s is full', workspace)
        ELSE format('no definition %s in workspace %s', definition, workspace) END
        USING ERRCODE = CASE answer.outcome WHEN 'conflict' THEN 'unique_violation'
                                            WHEN 'full' THEN 'configuration_limit_exceeded'
                                       ELSE 'no_data_found' END;
END $fn$;

CREATE OR REPLACE FUNCTION forebay.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $fn$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid()) PLACING
                substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$fn$;

-- Who is connected, as far as that role was allowed to say: current_user is the owner inside a function that runs with
-- its owner's rights.
CREATE OR REPLACE FUNCTION forebay.caller() RETURNS text LANGUAGE sql STABLE AS $fn$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END
$fn$;

-- Is who is connected one of ours: the owner of these tables, or a member of that role?
CREATE OR REPLACE FUNCTION forebay.is_ours() RETURNS boolean LANGUAGE sql STABLE AS $fn$
    SELECT pg_has_role(forebay.caller()::name, owned.relowner, 'MEMBER')
      FROM pg_catalog.pg_class owned
     WHERE owned.oid = 'public.domain_events'::regclass
$fn$;
