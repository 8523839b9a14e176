-- Accepts starts: execution, ticket and audit row in one commit. Repeatable by id and by
-- idempotency key. Each row is answered on its own, in the order given:
-- accepted, existing (same key, same content: its id), conflict (same key, other content),
-- not_found (no such living definition in that workspace), draft (never published), full (its
-- workspace's backlog has no room: nothing of it is stored).
--
-- p_versions pins another version than the published one, p_reruns names the execution it repeats;
-- p_max_backlog is the limit of workspaces that have none of their own; where it is null too, the tier's
-- holds. The tier's limit is not checked without p_keep_count (`forebay_enqueue`): a large backlog is cheap to count only if
-- the count is kept, and keeping it would lock a row until the caller's transaction ends.
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
    accepted uuid[];
    refused uuid[];
    queued record;
    gates record;
    -- One time for the whole call: items of one call go in the order of their ids, however they are joined.
    v_now timestamptz := clock_timestamp();
BEGIN
    -- Only workspaces with a limit pay for it.
    WITH w AS MATERIALIZED (
        SELECT t.ws, l.lim, t.n
          FROM (SELECT t.ws, count(*)::int AS n FROM unnest(p_workspaces) AS t(ws) GROUP BY t.ws) t
          JOIN forebay.workspace w ON w.id = t.ws
         CROSS JOIN LATERAL (SELECT coalesce(w.max_backlog, p_max_backlog,
                (SELECT r.max_backlog FROM forebay.tier r WHERE r.name = w.tier AND p_keep_count)) AS lim) l
         WHERE l.lim IS NOT NULL),
    r AS MATERIALIZED (SELECT w.ws, forebay.backlog_room(w.ws, w.lim, w.n, p_keep_count) AS room FROM w ORDER BY w.ws)
    SELECT coalesce(array_agg(t.id), '{}') INTO refused
      FROM (SELECT t.id, t.ws, row_number() OVER (PARTITION BY t.ws ORDER BY t.ord) AS rn
              FROM unnest(p_ids, p_workspaces) WITH ORDINALITY AS t(id, ws, ord)) t
      JOIN r ON r.ws = t.ws AND t.rn > r.room;

    WITH t AS MATERIALIZED (
        SELECT * FROM unnest(p_ids, p_workspaces, p_definitions, p_inputs, p_run_at, p_priorities, p_keys,
                             p_idempotency, p_fingerprints, p_triggers, p_traces, p_versions, p_reruns) WITH ORDINALITY
            AS t(id, ws, def, input, run_at, priority, key, idempotency, fingerprint, trig, trace, version, rerun, ord)),
    -- A batch is mostly of one definition: it is looked up once.
    v AS MATERIALIZED (
        SELECT t.ws, t.def, t.version, v.id AS pinned, v.timeout_ms, d.concurrency IS NOT NULL OR d.status <> 'ACTIVE' AS limited
          FROM (SELECT DISTINCT t.ws, t.def, t.version FROM t) t
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_definition d
                              WHERE d.id = t.def AND d.workspace_id = t.ws AND d.deleted_at IS NULL LIMIT 1) d
         CROSS JOIN LATERAL (SELECT 1 FROM forebay.workspace w WHERE w.id = t.ws AND w.deleted_at IS NULL LIMIT 1) w
         CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_definition_version v
                              WHERE v.id = coalesce(t.version, d.published_version) AND v.workflow_definition_id = d.id LIMIT 1) v
         WHERE d.status <> 'DRAFT'),
    d AS MATERIALIZED (
        SELECT t.*, v.pinned, v.timeout_ms, v.limited
          FROM t JOIN v ON v.ws = t.ws AND v.def = t.def AND v.version IS NOT DISTINCT FROM t.version
         WHERE NOT t.id = ANY (refused)),
    e AS (
        INSERT INTO forebay.workflow_execution (id, workspace_id, workflow_definition_id, version_id, semantics, trigger, input,
            priority, concurrency_key, idempotency_key, fingerprint, timeout_ms, created_at, deadline_at, trace_context, root,
            rerun_of)
        SELECT d.id, d.ws, d.def, d.pinned, p_semantics, coalesce(d.trig, '{}'), d.input, d.priority, d.key,
               d.idempotency, d.fingerprint, d.timeout_ms, v_now, greatest(coalesce(d.run_at, v_now), v_now) + interval '30 days',
               d.trace, d.id, d.rerun
          -- Calls that share keys wait for each other in one order; of two equals in a call the first is accepted.
          FROM d ORDER BY d.ws, d.idempotency, d.ord
        ON CONFLICT DO NOTHING
        RETURNING id),
    h AS MATERIALIZED (SELECT d.* FROM d WHERE d.id = ANY (ARRAY(SELECT e.id FROM e))),
    a AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT h.ws, p_actor, CASE WHEN h.rerun IS NULL THEN 'execution.start' ELSE 'execution.rerun' END, 'execution', h.id,
               CASE WHEN h.rerun IS NOT NULL THEN jsonb_build_object('of', h.rerun) END
          FROM h),
    l AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'INSERT', array_agg(h.id), array_agg(h.ws), 'PENDING' FROM h HAVING count(*) > 0),
    q AS (
        INSERT INTO forebay.execution_queue (id, workspace_id, workflow_definition_id, execution_id, priority, created_at,
            available_at, rank, gated, stage, concurrency_key)
        SELECT h.id, h.ws, h.def, h.id, h.priority, v_now, coalesce(h.run_at, v_now),
               (extract(epoch FROM v_now) * 1000)::bigint + (h.priority - 3) * p_step_ms,
               h.key IS NOT NULL OR h.limited,
               CASE WHEN h.run_at > v_now THEN 1 WHEN h.key IS NOT NULL THEN 2 WHEN h.limited THEN 3 ELSE 0 END,
               h.key
          FROM h
        RETURNING id, stage, gated)
    SELECT coalesce(array_agg(q.id), '{}') AS ids, bool_or(q.gated) AS gated, min(q.stage) AS least, max(q.stage) AS most
      INTO queued FROM q;
    accepted := queued.ids;

    IF queued.gated THEN
        SELECT array_agg(q.workspace_id) AS ws, array_agg(q.workflow_definition_id) AS def, array_agg(q.concurrency_key) AS key
          INTO gates
          FROM (SELECT DISTINCT q.workspace_id, q.workflow_definition_id, q.concurrency_key
                  FROM forebay.execution_queue q WHERE q.id = ANY (accepted) AND q.gated) q;
        PERFORM forebay.unblock(gates.ws, gates.def, gates.key);
    ELSIF cardinality(accepted) = cardinality(p_ids) AND queued.least = queued.most THEN
        -- Nothing was refused or there before: no answer has to be looked up.
        RETURN QUERY SELECT t.ord, 'accepted', t.id, t.ws, queued.least
          FROM unnest(p_ids, p_workspaces) WITH ORDINALITY AS t(id, ws, ord);
        RETURN;
    END IF;

    RETURN QUERY
    SELECT t.ord,
           CASE WHEN t.id = ANY (accepted) THEN 'accepted'
                WHEN o.id IS NOT NULL AND o.fingerprint IS NOT DISTINCT FROM t.fingerprint THEN 'existing'
                WHEN o.id IS NOT NULL THEN 'conflict'
                WHEN d.id IS NULL THEN 'not_found'
                WHEN d.status = 'DRAFT' THEN 'draft'
                WHEN t.id = ANY (refused) THEN 'full'
                ELSE 'not_found' END,
           CASE WHEN t.id = ANY (accepted) THEN t.id ELSE o.id END, t.ws,
           (SELECT q.stage FROM forebay.execution_queue q WHERE q.id = t.id)
      FROM unnest(p_ids, p_workspaces, p_definitions, p_idempotency, p_fingerprints) WITH ORDINALITY
           AS t(id, ws, def, idempotency, fingerprint, ord)
      -- Two probes, never one condition with OR: that read every execution there ever was.
      LEFT JOIN LATERAL (
            SELECT o.id, o.fingerprint FROM forebay.workflow_execution o
             WHERE o.id = t.id AND NOT t.id = ANY (accepted)
            UNION ALL
            SELECT o.id, o.fingerprint FROM forebay.workflow_execution o
             WHERE o.workspace_id = t.ws AND o.idempotency_key = t.idempotency AND NOT t.id = ANY (accepted)
             LIMIT 1) o ON true
      LEFT JOIN forebay.workflow_definition d ON d.id = t.def AND d.workspace_id = t.ws AND d.deleted_at IS NULL
     ORDER BY t.ord;
END $fn$;

-- For other programs, inside their own transaction: one start. Returns the execution's id, which is
-- also the queue item's. Ids are UUIDv7, made here from the database's clock. Runs with its owner's rights: whoever may call it needs no
-- right on any table, and the audit row names who is connected.
CREATE OR REPLACE FUNCTION forebay.enqueue(
    workspace uuid, definition uuid, input jsonb DEFAULT NULL, priority int DEFAULT 3,
    run_at timestamptz DEFAULT NULL, concurrency_key text DEFAULT NULL, idempotency_key text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
    new_id uuid := forebay.new_id();
    r record;
BEGIN
    -- The same forms as kernel::queue::idempotency: keys that hooks, schedules, nodes and jobs derive.
    IF idempotency_key ~ '^(hook/|schedule:|node/|event:)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}/' THEN
        RAISE EXCEPTION 'idempotency key %: this service derives keys of that form itself, choose another', quote_literal(idempotency_key)
            USING ERRCODE = 'check_violation';
    END IF;
    IF priority NOT BETWEEN 1 AND 5 THEN
        RAISE EXCEPTION 'priority % is outside 1 to 5', priority USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO r FROM forebay.enqueue_many(
        ARRAY[new_id], ARRAY[workspace], ARRAY[definition], ARRAY[input], ARRAY[priority::smallint], ARRAY[run_at],
        ARRAY[concurrency_key], ARRAY[idempotency_key],
        ARRAY[CASE WHEN idempotency_key IS NULL THEN NULL
                   ELSE sha256(convert_to(definition::text || coalesce(input::text, ''), 'UTF8')) END],
        ARRAY['{"type": "sql"}'::jsonb], ARRAY[NULL::text], ARRAY[NULL::uuid], ARRAY[NULL::uuid], 'sql:' || forebay.caller(), 3,
        60000, NULL, false);
    IF r.outcome IN ('accepted', 'existing') THEN
        RETURN r.execution;
    END IF;
    RAISE EXCEPTION '%', CASE r.outcome
        WHEN 'conflict' THEN format('idempotency key %L was used with other content', idempotency_key)
        WHEN 'draft' THEN format('definition %s is not published', definition)
        WHEN 'full' THEN format('the backlog of workspace %s is full', workspace)
        ELSE format('no definition %s in workspace %s', definition, workspace) END
        USING ERRCODE = CASE r.outcome WHEN 'conflict' THEN 'unique_violation' WHEN 'full' THEN 'configuration_limit_exceeded'
                                       ELSE 'no_data_found' END;
END $fn$;

CREATE OR REPLACE FUNCTION forebay.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $fn$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid()) PLACING
                substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$fn$;

-- Who is connected, as far as that role was allowed to say: current_user is the owner inside a function that runs with its owner's rights.
CREATE OR REPLACE FUNCTION forebay.caller() RETURNS text LANGUAGE sql STABLE AS $fn$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END
$fn$;

-- Is who is connected one of ours: the owner of these tables, or a member of that role?
CREATE OR REPLACE FUNCTION forebay.is_ours() RETURNS boolean LANGUAGE sql STABLE AS $fn$
    SELECT pg_has_role(forebay.caller()::name, owned.relowner, 'MEMBER') FROM pg_catalog.pg_class owned WHERE owned.oid = 'public.domain_events'::regclass
$fn$;
