-- Working on jobs: our own worker, workers of the API, and the loops that bring jobs back. Every move is guarded by the
-- status it leaves; what is held moves only with its claim. Rows are locked projection first, then ours beside it; an
-- execution that ends is locked before both.

-- The bindings that pending jobs have, also those that are gone: one probe of an index for each, however many jobs
-- there are.
CREATE OR REPLACE FUNCTION forebay_r1.bindings_of_pending_jobs() RETURNS SETOF uuid
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
    WITH RECURSIVE w AS (
        (SELECT j.binding_id FROM forebay.workflow_queue_job j WHERE j.pending_since IS NOT NULL AND j.binding_id IS NOT NULL
          ORDER BY j.binding_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.binding_id FROM forebay.workflow_queue_job j WHERE j.pending_since IS NOT NULL AND j.binding_id > w.binding_id
                 ORDER BY j.binding_id LIMIT 1)
          FROM w WHERE w.binding_id IS NOT NULL)
    SELECT w.binding_id FROM w WHERE w.binding_id IS NOT NULL
$fn$;

-- Jobs that our own worker may take, with what it needs to decide about each. Bindings take turns: the first job of
-- each, then the second; of more bindings than p_limit those whose first is due longest. So a crowd of jobs that cannot
-- begin keeps no other binding's waiting: those whose binding is gone have no turn, nor has a binding whose workspace
-- was full a moment ago. It reads two index entries for each binding with pending jobs, and at most p_limit jobs of at
-- most p_limit bindings.
CREATE OR REPLACE FUNCTION forebay_r1.due_jobs(p_limit int)
RETURNS TABLE (id uuid, retries int, event_id uuid, event_type text, event_data jsonb, event_metadata jsonb, stream_id uuid,
    stream_type text, stream_version int, created timestamptz, workspace uuid, definition uuid, definition_workspace uuid,
    filter text, input jsonb, workflow_id text)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
$fn$;

-- Claims jobs for our own worker and enqueues their executions, in one transaction: a job that another took meanwhile
-- starts nothing. p_skip: its filter says no. p_errors: it cannot even begin. The key of a start is (job, retry_count):
-- one execution for each try, ever. p_versions: the published version that its input was judged by, which is the one
-- that is run. Answers what became of each: started, skipped, failed, later (its workspace's backlog is full), moved
-- (another version is published by now: the job is as it was), or lost.
CREATE OR REPLACE FUNCTION forebay_r1.start_jobs(
    p_ids uuid[], p_retries int[], p_executions uuid[], p_workspaces uuid[], p_definitions uuid[], p_versions uuid[], p_inputs jsonb[],
    p_triggers jsonb[], p_workflow_ids text[], p_skip boolean[], p_errors text[], p_worker text, p_actor text, p_semantics int,
    p_step_ms bigint, p_max_backlog int)
RETURNS TABLE (id uuid, answer text, execution uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $fn$
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
END $fn$;

-- A pending job that this transaction has locked becomes our own worker's.
CREATE OR REPLACE FUNCTION forebay_r1.take_job(p_id uuid, p_worker text, p_claim uuid, p_workflow_id text) RETURNS void
LANGUAGE plpgsql AS $fn$
BEGIN
    UPDATE public.workflow_queue_projection p
       SET status = 'processing', worker_id = p_worker, claimed_at = now(), workflow_id = p_workflow_id,
           workflow_run_id = CASE WHEN p_workflow_id IS NOT NULL THEN p_claim::text END
     WHERE p.id = p_id AND p.status = 'pending';
    UPDATE forebay.workflow_queue_job j SET held = 'ours', claim_id = p_claim, lease_until = NULL WHERE j.id = p_id AND j.held = 'sql';
END $fn$;

-- Ends a job that is processing, under the claim it has: failed if there is an error. Answers whether it did. Not to be
-- tried again unless p_again.
CREATE OR REPLACE FUNCTION forebay_r1.finish_job(p_id uuid, p_result jsonb, p_error text, p_stack text, p_again boolean) RETURNS boolean
LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- What follows for a job when its execution ended: called with executions that an event started. A job whose row
-- somebody holds locked is left to reconcile_jobs: the worker role may lock rows for as long as it likes, and the end,
-- which frees a slot, does not wait for that. A transient error (a full disk) is raised, and the caller repeats the end
-- as a whole. Any other never keeps an execution from ending: it is told to the log, and the recovery loop comes back
-- to it.
CREATE OR REPLACE FUNCTION forebay_r1.end_jobs_of(p_executions uuid[]) RETURNS int LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Fails the jobs of executions whose rows are missing. They are not tried again: the first run may have done its work.
-- Locked rows and errors are handled as in end_jobs_of.
CREATE OR REPLACE FUNCTION forebay_r1.fail_jobs_of_missing(p_executions uuid[]) RETURNS int LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- The chain of failures of an execution: its own error, then each node that failed, with its earlier attempts.
CREATE OR REPLACE FUNCTION forebay_r1.failure_chain(p_execution uuid, p_error jsonb) RETURNS text LANGUAGE sql STABLE AS $fn$
    SELECT left(concat_ws(E'\n',
        (p_error ->> 'type') || coalesce(' at ' || (p_error ->> 'node'), '') || ': ' || (p_error ->> 'message'),
        (SELECT string_agg(
            concat_ws(E'\n',
                '  node ' || n.node || ', attempt ' || n.attempt || ': ' || concat_ws(': ', n.error ->> 'type', n.error ->> 'message'),
                (SELECT string_agg('    attempt ' || (a ->> 'attempt') || ' at ' || (a ->> 'at') || ': '
                                   || concat_ws(': ', a -> 'error' ->> 'type', a -> 'error' ->> 'message'), E'\n')
                   FROM jsonb_array_elements(CASE jsonb_typeof(n.earlier) WHEN 'array' THEN n.earlier ELSE '[]' END) a)), E'\n' ORDER BY n.seq)
           FROM forebay.workflow_execution_node n WHERE n.execution_id = p_execution AND n.error IS NOT NULL)), 20000)
$fn$;

-- The types of pending jobs that these stand for (exact, or a prefix: order.*), of one workspace unless that is null.
-- Hops from type to type within a prefix, at most p_most of them.
CREATE OR REPLACE FUNCTION forebay_r1.pending_types(p_workspace uuid, p_types text[], p_most int) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- The oldest p_limit pending jobs of these types, of one workspace unless that is null. Each type is read by itself:
-- the backlog of other types, and of other workspaces, is not passed.
-- A range of one type, not equality: only the index by type has that order. With equality, statistics that know one
-- type alone choose the index by age and filter.
CREATE OR REPLACE FUNCTION forebay_r1.pending_jobs_of_types(p_workspace uuid, p_types text[], p_limit int) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Pending jobs claimed for a worker of the API, the oldest first, until they are 1 MiB together; of one workspace
-- unless that is null, of these types (exact, or a
-- prefix: order.*) and this id unless those are. Each under a claim of its own, which keeps the lease that was asked
-- for.
CREATE OR REPLACE FUNCTION forebay_r1.claim_jobs(
    p_workspace uuid, p_types text[], p_id uuid, p_worker text, p_lease_s int, p_limit int)
RETURNS TABLE (job public.workflow_queue_projection, workspace_id uuid, claim uuid, lease_until timestamptz)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- A job as a worker of the API may touch it: locked, of its workspace. Answers how it stands for this claim: held,
-- ended (by this very claim), lost, or null if there is none. What our own worker holds is never its: the claim there
-- is the execution's id, which everybody can read.
CREATE OR REPLACE FUNCTION forebay_r1.job_standing(p_id uuid, p_workspace uuid, p_claim uuid) RETURNS text LANGUAGE plpgsql AS $fn$
DECLARE
    t record;
BEGIN
    SELECT p.status, j.claim_id, j.held INTO t FROM public.workflow_queue_projection p JOIN forebay.workflow_queue_job j ON j.id = p.id
     WHERE p.id = p_id AND (p_workspace IS NULL OR j.workspace_id = p_workspace) FOR UPDATE OF p, j;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN CASE WHEN t.claim_id IS DISTINCT FROM p_claim OR t.held = 'ours' THEN 'lost' WHEN t.status = 'processing' THEN 'held' ELSE t.status END;
END $fn$;

-- Keeps a claim of the API for its lease again, or for another this once, and notes what runs it.
CREATE OR REPLACE FUNCTION forebay_r1.heartbeat_job(
    p_id uuid, p_workspace uuid, p_claim uuid, p_lease_s int, p_workflow_id text, p_run_id text)
RETURNS TABLE (answer text, lease_until timestamptz) LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Ends a job that this claim holds. Told twice, the second finds it done.
CREATE OR REPLACE FUNCTION forebay_r1.end_job(
    p_id uuid, p_workspace uuid, p_claim uuid, p_result jsonb, p_error text, p_stack text) RETURNS text LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Failed jobs whose wait is over are pending again. p_waits[n] is how long after failure n, in seconds.
CREATE OR REPLACE FUNCTION forebay_r1.retry_jobs(p_waits float8[], p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Jobs whose worker is gone are pending again: those held by plain SQL or the API, when their lease is over.
CREATE OR REPLACE FUNCTION forebay_r1.recover_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Due jobs whose binding is gone are nobody's of ours: deleting a definition, or publishing it with another event type,
-- leaves them so, and so does an event that was folded while its binding went. A binding that is gone does not come
-- back. p_limit at most.
CREATE OR REPLACE FUNCTION forebay_r1.put_aside_unbound_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Our own worker's jobs whose execution is over, or gone: ended after it, failed with its dead letter, or pending
-- again. While a ticket of a missing execution holds a slot, its run may be alive: the job waits for the end of that
-- ticket.
CREATE OR REPLACE FUNCTION forebay_r1.reconcile_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- The projection as its facts tell it: the first of each stream for what never changes, the last for the rest.
CREATE OR REPLACE FUNCTION forebay_r1.folded_jobs() RETURNS SETOF public.workflow_queue_projection LANGUAGE sql STABLE AS $fn$
    SELECT (jsonb_populate_record(NULL::public.workflow_queue_projection,
        coalesce(jsonb_build_object('event_data', e.event_data), '{}') || a.event_data || z.event_data)).*
      FROM (SELECT DISTINCT ON (f.stream_id) f.stream_id, f.event_type, f.event_data FROM public.domain_events f
             WHERE f.stream_type = 'workflow_queue' ORDER BY f.stream_id, f.stream_version DESC) z
      JOIN public.domain_events a ON a.stream_id = z.stream_id AND a.stream_type = 'workflow_queue' AND a.stream_version = 1
      LEFT JOIN LATERAL forebay.event_of((a.event_data ->> 'event_id')::uuid,
           coalesce((a.event_metadata ->> 'event_workspace_id')::uuid, a.workspace_id),
           (a.event_data ->> 'stream_id')::uuid, a.event_data ->> 'stream_type', a.event_data ->> 'event_type') e ON true
     WHERE z.event_type <> 'workflow.queue.retired'
$fn$;

-- How the table differs from its facts: missing (no row), extra (no facts), changed.
CREATE OR REPLACE FUNCTION forebay_r1.differing_jobs() RETURNS TABLE (id uuid, how text) LANGUAGE sql STABLE AS $fn$
    SELECT coalesce(f.id, p.id), CASE WHEN p.id IS NULL THEN 'missing' WHEN f.id IS NULL THEN 'extra' ELSE 'changed' END
      FROM forebay_r1.folded_jobs() f FULL JOIN public.workflow_queue_projection p ON p.id = f.id
     WHERE p.id IS NULL OR f.id IS NULL OR f IS DISTINCT FROM p
$fn$;

-- Makes the table what its facts say, and answers what that took. Nobody writes meanwhile; only what differs is
-- written.
CREATE OR REPLACE FUNCTION forebay_r1.rebuild_jobs() RETURNS TABLE (id uuid, how text) LANGUAGE plpgsql AS $fn$
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
END $fn$;
