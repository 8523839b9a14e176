-- Working on jobs: our own worker, workers of the API, and the loops that bring jobs back. Every move is guarded by the
-- status it leaves; what is held moves only with its claim. Rows are locked projection first, then ours beside it; an
-- execution that ends is locked before both.

-- The bindings that pending jobs have, also those that are gone: one probe of an index for each, however many jobs
-- there are.
CREATE OR REPLACE FUNCTION forebay_r1.bindings_of_pending_jobs() RETURNS SETOF uuid
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
$fn$;

-- Jobs that our own worker may take, with what it needs to decide about each. Bindings take turns: the first job of
-- each, then the second; of more bindings than p_limit those whose first is due longest. So a crowd of jobs that cannot
-- begin keeps no other binding's waiting: those whose binding is gone have no turn, nor has a binding whose workspace
-- was full a moment ago. It reads two index entries for each binding with pending jobs, and at most p_limit jobs of at
-- most p_limit bindings.
CREATE OR REPLACE FUNCTION forebay_r1.due_jobs(p_limit int)
RETURNS TABLE (id uuid, retries int, event_id uuid, event_type text, event_data jsonb, event_metadata jsonb,
    stream_id uuid, stream_type text, stream_version int, created timestamptz, workspace uuid, definition uuid,
    definition_workspace uuid, filter text, input jsonb, workflow_id text)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
$fn$;

-- Claims jobs for our own worker and enqueues their executions, in one transaction: a job that another took meanwhile
-- starts nothing. p_skip: its filter says no. p_errors: it cannot even begin. The key of a start is (job, retry_count):
-- one execution for each try, ever. p_versions: the published version that its input was judged by, which is the one
-- that is run. Answers what became of each: started, skipped, failed, later (its workspace's backlog is full), moved
-- (another version is published by now: the job is as it was), or lost.
CREATE OR REPLACE FUNCTION forebay_r1.start_jobs(
    p_ids uuid[], p_retries int[], p_executions uuid[], p_workspaces uuid[], p_definitions uuid[], p_versions uuid[],
    p_inputs jsonb[], p_triggers jsonb[], p_workflow_ids text[], p_skip boolean[], p_errors text[], p_worker text,
    p_actor text, p_semantics int, p_step_ms bigint, p_max_backlog int)
RETURNS TABLE (id uuid, answer text, execution uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $fn$
#variable_conflict use_column
DECLARE
    v_job record;
    taken uuid[];
    moved uuid[];
    begun uuid[];
    later uuid[] := '{}';
BEGIN
    SELECT coalesce(array_agg(locked.id), '{}') INTO taken FROM (
        SELECT projection.id
          FROM public.workflow_queue_projection projection
          JOIN unnest(p_ids, p_retries) AS asked(id, retries) ON asked.id = projection.id
         WHERE projection.status = 'pending' AND projection.retry_count = asked.retries
         ORDER BY projection.id FOR UPDATE OF projection SKIP LOCKED) locked;
    -- What was judged by a version that is published no more stays as it is.
    SELECT coalesce(array_agg(asked.id), '{}')
      INTO moved
      FROM unnest(p_ids, p_definitions, p_versions) AS asked(id, definition, version)
      JOIN forebay.workflow_definition definition ON definition.id = asked.definition
     WHERE asked.id = ANY (taken) AND asked.version IS NOT NULL
       AND definition.published_version IS DISTINCT FROM asked.version;
    taken := ARRAY(SELECT still.id FROM unnest(taken) AS still(id) WHERE NOT still.id = ANY (moved));
    -- Only what begins has an execution.
    SELECT coalesce(array_agg(asked.id), '{}') INTO begun FROM unnest(p_ids, p_skip, p_errors) AS asked(id, skip, error)
     WHERE asked.id = ANY (taken) AND NOT asked.skip AND asked.error IS NULL;

    FOR v_job IN
        WITH starts AS MATERIALIZED (
            -- By the job's id: an event's may be another workspace's too, and a platform's workflow runs for both.
            SELECT asked.*, 'event:' || projection.id || '/' || asked.retries AS key
              FROM unnest(p_ids, p_retries, p_executions, p_workspaces, p_definitions, p_versions, p_inputs, p_triggers,
                          p_workflow_ids)
                   AS asked(id, retries, execution, workspace, definition, version, input, trig, workflow_id)
              JOIN public.workflow_queue_projection projection ON projection.id = asked.id
             WHERE asked.id = ANY (begun)
             ORDER BY asked.id),
        batch AS MATERIALIZED (
            SELECT array_agg(starts.id) AS ids, array_agg(starts.execution) AS executions,
                   array_agg(starts.workspace) AS workspaces, array_agg(starts.definition) AS definitions,
                   array_agg(starts.input) AS inputs,
                   array_agg(forebay.usual_priority()::smallint) AS priorities,
                   array_agg(NULL::timestamptz) AS run_at, array_agg(NULL::text) AS none, array_agg(starts.key) AS keys,
                   array_agg(sha256(convert_to(starts.key, 'UTF8'))) AS prints, array_agg(starts.trig) AS triggers,
                   array_agg(starts.version) AS versions, array_agg(NULL::uuid) AS nobody,
                   array_agg(starts.workflow_id) AS workflow_ids
              FROM starts HAVING count(*) > 0)
        SELECT batch.ids[started.ord] AS id, started.outcome, started.execution,
               batch.workflow_ids[started.ord] AS workflow_id
          FROM batch
         CROSS JOIN LATERAL forebay.enqueue_many(batch.executions, batch.workspaces, batch.definitions, batch.inputs,
               batch.priorities, batch.run_at, batch.none, batch.keys, batch.prints, batch.triggers, batch.none,
               batch.versions, batch.nobody, p_actor, p_semantics, p_step_ms, p_max_backlog, true) started
    LOOP
        IF v_job.outcome IN ('accepted', 'existing') THEN
            PERFORM forebay_r1.take_job(v_job.id, p_worker, v_job.execution,
                                        coalesce(v_job.workflow_id, 'execution-' || v_job.execution));
            RETURN QUERY SELECT v_job.id, 'started', v_job.execution;
        ELSIF v_job.outcome = 'full' THEN
            later := later || v_job.id;
            RETURN QUERY SELECT v_job.id, 'later', NULL::uuid;
        ELSE
            PERFORM forebay_r1.take_job(v_job.id, p_worker, gen_random_uuid(), NULL);
            PERFORM forebay_r1.finish_job(v_job.id, NULL,
                CASE v_job.outcome WHEN 'draft' THEN 'the definition was never published'
                                   ELSE 'the definition or its workspace is gone' END,
                NULL, true);
            RETURN QUERY SELECT v_job.id, 'failed', NULL::uuid;
        END IF;
    END LOOP;

    FOR v_job IN
        SELECT asked.id, asked.error
          FROM unnest(p_ids, p_errors) AS asked(id, error)
         WHERE asked.id = ANY (taken) AND NOT asked.id = ANY (begun)
    LOOP
        PERFORM forebay_r1.take_job(v_job.id, p_worker, gen_random_uuid(), NULL);
        PERFORM forebay_r1.finish_job(v_job.id, '{"skipped": true}', v_job.error, v_job.error, true);
        RETURN QUERY SELECT v_job.id, CASE WHEN v_job.error IS NULL THEN 'skipped' ELSE 'failed' END, NULL::uuid;
    END LOOP;
    RETURN QUERY
    SELECT asked.id, CASE WHEN asked.id = ANY (moved) THEN 'moved' ELSE 'lost' END, NULL::uuid
      FROM unnest(p_ids) AS asked(id)
     WHERE NOT asked.id = ANY (taken);
    -- One row, however many jobs wait behind it. Last, and of what nobody else has: it waits for no lock.
    UPDATE forebay.event_binding binding SET full_until = now() + interval '5 seconds'
     WHERE binding.id = ANY (ARRAY(
        SELECT binding.id FROM forebay.event_binding binding
         WHERE binding.id = ANY (ARRAY(SELECT job.binding_id
                                         FROM forebay.workflow_queue_job job
                                        WHERE job.id = ANY (later)))
           FOR UPDATE SKIP LOCKED));
END $fn$;

-- A pending job that this transaction has locked becomes our own worker's.
CREATE OR REPLACE FUNCTION forebay_r1.take_job(p_id uuid, p_worker text, p_claim uuid, p_workflow_id text) RETURNS void
LANGUAGE plpgsql AS $fn$
BEGIN
    UPDATE public.workflow_queue_projection projection
       SET status = 'processing', worker_id = p_worker, claimed_at = now(), workflow_id = p_workflow_id,
           workflow_run_id = CASE WHEN p_workflow_id IS NOT NULL THEN p_claim::text END
     WHERE projection.id = p_id AND projection.status = 'pending';
    UPDATE forebay.workflow_queue_job job
       SET held = 'ours', claim_id = p_claim, lease_until = NULL
     WHERE job.id = p_id AND job.held = 'sql';
END $fn$;

-- Ends a job that is processing, under the claim it has: failed if there is an error. Answers whether it did. Not to be
-- tried again unless p_again.
CREATE OR REPLACE FUNCTION forebay_r1.finish_job(p_id uuid, p_result jsonb, p_error text, p_stack text, p_again boolean)
RETURNS boolean
LANGUAGE plpgsql AS $fn$
DECLARE
    ended boolean;
BEGIN
    PERFORM set_config('forebay.claim',
                       (SELECT job.claim_id::text FROM forebay.workflow_queue_job job WHERE job.id = p_id), true);
    UPDATE public.workflow_queue_projection projection
       SET status = CASE WHEN p_error IS NULL THEN 'completed' ELSE 'failed' END,
           result = CASE WHEN p_error IS NULL THEN p_result END, error_message = p_error, error_stack = p_stack
     WHERE projection.id = p_id AND projection.status = 'processing';
    ended := FOUND;
    PERFORM set_config('forebay.claim', '', true);
    IF NOT p_again THEN
        UPDATE forebay.workflow_queue_job job SET retry_from = NULL WHERE job.id = p_id;
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
    v_execution record;
    done int := 0;
BEGIN
    FOR v_execution IN
        SELECT execution.id, execution.status, execution.output, execution.error, job.id AS job
          FROM unnest(p_executions) AS ended(id) JOIN forebay.workflow_execution execution ON execution.id = ended.id
          LEFT JOIN forebay.workflow_queue_job job ON job.claim_id = execution.id AND job.held = 'ours'
         WHERE execution.completed_at IS NOT NULL ORDER BY execution.id
    LOOP
        BEGIN
            PERFORM 1
              FROM public.workflow_queue_projection projection
             WHERE projection.id = v_execution.job
             FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND AND EXISTS (SELECT 1
                                                  FROM public.workflow_queue_projection projection
                                                 WHERE projection.id = v_execution.job);
            IF v_execution.job IS NOT NULL AND forebay_r1.finish_job(
                v_execution.job, coalesce(v_execution.output, '{}'),
                CASE WHEN v_execution.status = 'COMPLETED' THEN NULL
                     WHEN v_execution.status = 'CANCELED' THEN 'the execution was canceled'
                     ELSE coalesce(v_execution.error ->> 'message', 'the execution ended ' || v_execution.status) END,
                CASE WHEN v_execution.status <> 'COMPLETED'
                     THEN forebay_r1.failure_chain(v_execution.id, v_execution.error) END,
                v_execution.status <> 'CANCELED')
            THEN
                done := done + 1;
            ELSE
                RAISE WARNING 'execution % came from an event and its job is not processing', v_execution.id;
            END IF;
        EXCEPTION
            WHEN OTHERS THEN
                IF forebay.is_transient(SQLSTATE) THEN
                    RAISE;
                END IF;
                RAISE WARNING 'the job of execution % could not be ended: %', v_execution.id, SQLERRM;
        END;
    END LOOP;
    RETURN done;
END $fn$;

-- Fails the jobs of executions whose rows are missing. They are not tried again: the first run may have done its work.
-- Locked rows and errors are handled as in end_jobs_of.
CREATE OR REPLACE FUNCTION forebay_r1.fail_jobs_of_missing(p_executions uuid[]) RETURNS int LANGUAGE plpgsql AS $fn$
DECLARE
    v_job record;
    done int := 0;
BEGIN
    FOR v_job IN
        SELECT job.id, job.claim_id FROM unnest(p_executions) AS missing(id)
          JOIN forebay.workflow_queue_job job ON job.claim_id = missing.id AND job.held = 'ours'
          JOIN public.workflow_queue_projection projection ON projection.id = job.id
         ORDER BY job.id
         FOR UPDATE OF projection SKIP LOCKED
    LOOP
        BEGIN
            IF forebay_r1.finish_job(v_job.id, NULL,
                                     'the row of execution ' || v_job.claim_id || ' is missing: somebody deleted it',
                                     NULL, false) THEN
                done := done + 1;
            END IF;
        EXCEPTION
            WHEN OTHERS THEN
                IF forebay.is_transient(SQLSTATE) THEN
                    RAISE;
                END IF;
                RAISE WARNING 'the job of execution % could not be ended: %', v_job.claim_id, SQLERRM;
        END;
    END LOOP;
    RETURN done;
END $fn$;

-- The chain of failures of an execution: its own error, then each node that failed, with its earlier attempts.
CREATE OR REPLACE FUNCTION forebay_r1.failure_chain(p_execution uuid, p_error jsonb) RETURNS text
LANGUAGE sql STABLE AS $fn$
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
$fn$;

-- The types of pending jobs that these stand for (exact, or a prefix: order.*), of one workspace unless that is null.
-- Hops from type to type within a prefix, at most p_most of them.
CREATE OR REPLACE FUNCTION forebay_r1.pending_types(p_workspace uuid, p_types text[], p_most int) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
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
END $fn$;

-- The oldest p_limit pending jobs of these types, of one workspace unless that is null. Each type is read by itself:
-- the backlog of other types, and of other workspaces, is not passed.
-- A range of one type, not equality: only the index by type has that order. With equality, statistics that know one
-- type alone choose the index by age and filter.
CREATE OR REPLACE FUNCTION forebay_r1.pending_jobs_of_types(p_workspace uuid, p_types text[], p_limit int)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
BEGIN
    IF p_workspace IS NULL THEN
        RETURN QUERY
        SELECT pending.id
          FROM (SELECT DISTINCT asked.type FROM forebay_r1.pending_types(NULL, p_types, 1000) AS asked(type)) asked
         CROSS JOIN LATERAL (SELECT job.id, job.pending_since FROM forebay.workflow_queue_job job
                              WHERE job.pending_since IS NOT NULL
                                AND job.event_type >= asked.type COLLATE "C"
                                AND job.event_type <= asked.type COLLATE "C"
                              ORDER BY job.event_type, job.pending_since, job.id LIMIT p_limit) pending
         ORDER BY pending.pending_since, pending.id LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT pending.id
          FROM (SELECT DISTINCT asked.type
                  FROM forebay_r1.pending_types(p_workspace, p_types, 1000) AS asked(type)) asked
         CROSS JOIN LATERAL (SELECT job.id, job.pending_since FROM forebay.workflow_queue_job job
                              WHERE job.pending_since IS NOT NULL AND job.workspace_id = p_workspace
                                AND job.event_type >= asked.type COLLATE "C"
                                AND job.event_type <= asked.type COLLATE "C"
                              ORDER BY job.event_type, job.pending_since, job.id LIMIT p_limit) pending
         ORDER BY pending.pending_since, pending.id LIMIT p_limit;
    END IF;
END $fn$;

-- Pending jobs claimed for a worker of the API, the oldest first, until they are 1 MiB together; of one workspace
-- unless that is null, of these types (exact, or a prefix: order.*) and this id unless those are. Each under a claim of
-- its own, which keeps the lease that was asked for.
CREATE OR REPLACE FUNCTION forebay_r1.claim_jobs(
    p_workspace uuid, p_types text[], p_id uuid, p_worker text, p_lease_s int, p_limit int)
RETURNS TABLE (job public.workflow_queue_projection, workspace_id uuid, claim uuid, lease_until timestamptz)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
#variable_conflict use_column
DECLARE
    v_job record;
    -- More than are asked for: other workers may hold the first ones at this moment.
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
                             FROM unnest(p_types) AS asked(type)
                            WHERE asked.type LIKE '%.*' AND starts_with(projection.event_type, left(asked.type, -1))))
         ORDER BY job.pending_since, job.id LIMIT p_limit FOR UPDATE OF projection SKIP LOCKED
    LOOP
        EXIT WHEN v_bytes > 1048576;
        v_bytes := v_bytes + coalesce(v_job.bytes, 0);
        UPDATE public.workflow_queue_projection projection
           SET status = 'processing', worker_id = p_worker, claimed_at = now()
         WHERE projection.id = v_job.id AND projection.status = 'pending';
        UPDATE forebay.workflow_queue_job job
           SET held = 'api', claim_id = gen_random_uuid(), claim_lease_s = coalesce(p_lease_s, job.lease_s),
               lease_until = clock_timestamp() + make_interval(secs => coalesce(p_lease_s, job.lease_s))
         WHERE job.id = v_job.id AND job.held = 'sql';
        RETURN QUERY
        SELECT projection, job.workspace_id, job.claim_id, job.lease_until
          FROM public.workflow_queue_projection projection
          JOIN forebay.workflow_queue_job job ON job.id = projection.id
         WHERE projection.id = v_job.id;
    END LOOP;
END $fn$;

-- A job as a worker of the API may touch it: locked, of its workspace. Answers how it stands for this claim: held,
-- ended (by this very claim), lost, or null if there is none. What our own worker holds is never its: the claim there
-- is the execution's id, which everybody can read.
CREATE OR REPLACE FUNCTION forebay_r1.job_standing(p_id uuid, p_workspace uuid, p_claim uuid) RETURNS text
LANGUAGE plpgsql AS $fn$
DECLARE
    v_job record;
BEGIN
    SELECT projection.status, job.claim_id, job.held
      INTO v_job
      FROM public.workflow_queue_projection projection
      JOIN forebay.workflow_queue_job job ON job.id = projection.id
     WHERE projection.id = p_id AND (p_workspace IS NULL OR job.workspace_id = p_workspace)
     FOR UPDATE OF projection, job;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN CASE WHEN v_job.claim_id IS DISTINCT FROM p_claim OR v_job.held = 'ours' THEN 'lost'
                WHEN v_job.status = 'processing' THEN 'held'
                ELSE v_job.status END;
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
            UPDATE public.workflow_queue_projection projection
               SET workflow_id = coalesce(p_workflow_id, projection.workflow_id),
                   workflow_run_id = coalesce(p_run_id, projection.workflow_run_id)
             WHERE projection.id = p_id AND projection.status = 'processing';
        END IF;
        RETURN QUERY
        UPDATE forebay.workflow_queue_job job
           SET lease_until = clock_timestamp()
                 + make_interval(secs => coalesce(p_lease_s, job.claim_lease_s, job.lease_s))
         WHERE job.id = p_id AND job.held = 'api' AND job.claim_id = p_claim RETURNING 'held', job.lease_until;
        RETURN;
    END IF;
    RETURN QUERY SELECT stands, NULL::timestamptz;
END $fn$;

-- Ends a job that this claim holds. Told twice, the second finds it done.
CREATE OR REPLACE FUNCTION forebay_r1.end_job(
    p_id uuid, p_workspace uuid, p_claim uuid, p_result jsonb, p_error text, p_stack text) RETURNS text
LANGUAGE plpgsql AS $fn$
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
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END $fn$;

-- Jobs whose worker is gone are pending again: those held by plain SQL or the API, when their lease is over.
CREATE OR REPLACE FUNCTION forebay_r1.recover_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
DECLARE
    v_job record;
    done int := 0;
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
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END $fn$;

-- Our own worker's jobs whose execution is over, or gone: ended after it, failed with its dead letter, or pending
-- again. While a ticket of a missing execution holds a slot, its run may be alive: the job waits for the end of that
-- ticket.
CREATE OR REPLACE FUNCTION forebay_r1.reconcile_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
DECLARE
    v_job record;
    done int := 0;
BEGIN
    FOR v_job IN
        SELECT job.id, job.claim_id, execution.id AS execution, item.status AS ticket
          FROM forebay.workflow_queue_job job
          JOIN public.workflow_queue_projection projection ON projection.id = job.id
               AND projection.status = 'processing'
          LEFT JOIN forebay.workflow_execution execution ON execution.id = job.claim_id
          -- LIMIT 1: always a primary-key probe, never a scan.
          LEFT JOIN LATERAL (SELECT item.status
                               FROM forebay.execution_queue item
                              WHERE item.id = job.claim_id
                              LIMIT 1) item ON execution.id IS NULL
         WHERE job.held = 'ours'
           AND (execution.completed_at IS NOT NULL
                OR execution.id IS NULL AND coalesce(item.status IN ('PENDING', 'FAILED'), true))
         ORDER BY job.id LIMIT p_limit FOR UPDATE OF projection SKIP LOCKED
    LOOP
        IF v_job.execution IS NOT NULL THEN
            done := done + forebay_r1.end_jobs_of(ARRAY[v_job.execution]);
        ELSIF v_job.ticket = 'FAILED' THEN
            done := done + forebay_r1.fail_jobs_of_missing(ARRAY[v_job.claim_id]);
        ELSE
            PERFORM set_config('forebay.claim', v_job.claim_id::text, true);
            UPDATE public.workflow_queue_projection projection
               SET status = 'pending'
             WHERE projection.id = v_job.id AND projection.status = 'processing';
            PERFORM set_config('forebay.claim', '', true);
            done := done + 1;
        END IF;
    END LOOP;
    RETURN done;
END $fn$;

-- The projection as its facts tell it: the first of each stream for what never changes, the last for the rest.
CREATE OR REPLACE FUNCTION forebay_r1.folded_jobs() RETURNS SETOF public.workflow_queue_projection
LANGUAGE sql STABLE AS $fn$
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
$fn$;

-- How the table differs from its facts: missing (no row), extra (no facts), changed.
CREATE OR REPLACE FUNCTION forebay_r1.differing_jobs() RETURNS TABLE (id uuid, how text) LANGUAGE sql STABLE AS $fn$
    SELECT coalesce(folded.id, projection.id),
           CASE WHEN projection.id IS NULL THEN 'missing' WHEN folded.id IS NULL THEN 'extra' ELSE 'changed' END
      FROM forebay_r1.folded_jobs() folded
      FULL JOIN public.workflow_queue_projection projection ON projection.id = folded.id
     WHERE projection.id IS NULL OR folded.id IS NULL OR folded IS DISTINCT FROM projection
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
    SELECT coalesce(array_agg(differing.id), '{}') AS ids, coalesce(array_agg(differing.how), '{}') AS hows
      INTO found
      FROM forebay_r1.differing_jobs() differing;
    DELETE FROM public.workflow_queue_projection projection WHERE projection.id = ANY (found.ids);
    INSERT INTO public.workflow_queue_projection
    SELECT folded.* FROM forebay_r1.folded_jobs() folded WHERE folded.id = ANY (found.ids);
    DELETE FROM forebay.workflow_queue_job job
     WHERE job.id = ANY (found.ids)
       AND NOT EXISTS (SELECT 1 FROM public.workflow_queue_projection projection WHERE projection.id = job.id);
    -- What is ours beside a row that was lost with it: its facts, and a claim that is anybody's.
    INSERT INTO forebay.workflow_queue_job (id, event_type, event_id, event_workspace_id, workspace_id, version,
                                            pending_since, held, lease_until, retry_from)
    SELECT projection.id, projection.event_type, projection.event_id, event.workspace_id, last.workspace_id,
           last.stream_version, CASE WHEN projection.status = 'pending' THEN projection.updated_at END,
           CASE WHEN projection.status = 'processing' THEN 'sql' END,
           CASE WHEN projection.status = 'processing'
                THEN greatest(projection.claimed_at, projection.updated_at)
                     + make_interval(secs => forebay.usual_job_lease_s()) END,
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
     WHERE projection.id = ANY (found.ids)
    ON CONFLICT (id) DO NOTHING;
    PERFORM set_config('forebay.projection', '', true);
    RETURN QUERY SELECT * FROM unnest(found.ids, found.hows);
END $fn$;
