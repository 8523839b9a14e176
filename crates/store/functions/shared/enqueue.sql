-- Accepts start requests: execution and queue item in one commit. The execution's row is also its audit record: who
-- started it, and when. Repeatable by id and by idempotency key.
-- Each start has its own outcome, in the order given:
--   accepted
--   existing      same key, same content: returns that execution's id
--   conflict      same key, other content
--   not_found     the workspace has no such definition, or it was deleted
--   draft         the definition was never published
--   backlog_full  the workspace's backlog limit is reached: nothing of it is stored
--
--   p_versions         pins a version other than the published one
--   p_reruns           the execution to rerun
--   p_actors           who started it
--   p_max_backlog      the limit of workspaces that have no limit of their own (null: the tier's limit)
--   p_lock_timeout_ms  the longest wait for a lock (null: as below)
--
-- `forebay.enqueue` passes p_keep_count = false: then the tier's limit is not checked. Counting a large backlog is
-- cheap only if the count is stored, and storing it would lock a row until the caller's transaction ends.
CREATE OR REPLACE FUNCTION forebay.enqueue_many(
    p_ids uuid[], p_workspaces uuid[], p_definitions uuid[], p_inputs jsonb[], p_priorities smallint[],
    p_run_at timestamptz[], p_keys text[], p_idempotency text[], p_fingerprints bytea[], p_triggers jsonb[],
    p_traces text[], p_versions uuid[], p_reruns uuid[], p_actors text[], p_semantics int, p_step_ms bigint,
    p_max_backlog int, p_keep_count boolean, p_lock_timeout_ms int DEFAULT NULL)
RETURNS TABLE (ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
-- If a concurrent transaction uses the same key first, this call waits for it, but not for long.
SET lock_timeout = '2s'
AS $fn$
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
END $fn$;

-- Accepts one start, for other programs inside their own transaction. Returns the execution's id, which is also the
-- queue item's. Ids are UUIDv7, made from the database's clock. Runs with its owner's rights: a caller needs no right
-- on any table, and the audit record names the connected user.
CREATE OR REPLACE FUNCTION forebay.enqueue(
    workspace uuid, definition uuid, input jsonb DEFAULT NULL, priority int DEFAULT 3,
    run_at timestamptz DEFAULT NULL, concurrency_key text DEFAULT NULL, idempotency_key text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
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
END $fn$;

CREATE OR REPLACE FUNCTION forebay.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $fn$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid()) PLACING
                substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$fn$;

-- The connected user, or the role that this user has set with SET ROLE. Inside a function that runs with its owner's
-- rights, current_user would be the owner.
CREATE OR REPLACE FUNCTION forebay.caller() RETURNS text LANGUAGE sql STABLE AS $fn$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END
$fn$;

-- Is the connected user the owner of these tables, or a member of that role?
CREATE OR REPLACE FUNCTION forebay.is_owner() RETURNS boolean LANGUAGE sql STABLE AS $fn$
    SELECT pg_has_role(forebay.caller()::name, owned.relowner, 'MEMBER')
      FROM pg_catalog.pg_class owned
     WHERE owned.oid = 'public.domain_events'::regclass
$fn$;
