-- Jobs that the projector starts: which are due, how their executions start, and how a job ends with its execution.
-- Every change names the status it leaves; a claimed job changes only under its claim. Lock order, also in the other
-- files about jobs: an execution that ends, then the row of workflow_queue_projection, then the row of
-- workflow_queue_job.

-- The bindings of pending jobs, including deleted bindings. One index probe per binding, however many jobs there are.
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

-- Jobs that the projector may claim, with what it needs to decide about each. Bindings take turns: first the oldest job
-- of each binding, then the second of each. If there are more than p_limit bindings, those whose first job has been due
-- longest come first. Deleted bindings are left out, and so are bindings whose workspace was full less than 5 seconds
-- ago. So jobs that cannot begin do not delay jobs of other bindings. Reads two index entries for each binding with
-- pending jobs, and at most p_limit jobs of at most p_limit bindings.
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

-- Claims jobs for the projector and enqueues their executions, in one transaction. If another worker has claimed a job,
-- no execution starts for it. Each start has the key (job, retry_count), so there is never more than one execution per
-- try.
--
--   p_skip      the filter does not match: the job completes without an execution
--   p_errors    the error with which the job fails without an execution
--   p_versions  the published version against which the input was checked, and which must run
--
-- Returns for each job:
--
--   started          its execution was accepted
--   skipped          its filter does not match
--   failed           it cannot begin
--   backlog_full     the workspace's backlog limit is reached
--   version_changed  another version was published since; the job is unchanged
--   lost             another worker has claimed it
CREATE OR REPLACE FUNCTION forebay_r1.start_jobs(
    p_ids uuid[], p_retries int[], p_executions uuid[], p_workspaces uuid[], p_definitions uuid[], p_versions uuid[],
    p_inputs jsonb[], p_triggers jsonb[], p_workflow_ids text[], p_skip boolean[], p_errors text[], p_worker text,
    p_actor text, p_semantics int, p_step_ms bigint, p_max_backlog int)
RETURNS TABLE (id uuid, answer text, execution uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $fn$
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
END $fn$;

-- Claims a pending job, locked by this transaction, for the projector.
CREATE OR REPLACE FUNCTION forebay_r1.claim_job_for_projector(
    p_id uuid, p_worker text, p_claim uuid, p_workflow_id text) RETURNS void
LANGUAGE plpgsql AS $fn$
BEGIN
    UPDATE public.workflow_queue_projection projection
       SET status = 'processing', worker_id = p_worker, claimed_at = now(), workflow_id = p_workflow_id,
           workflow_run_id = CASE WHEN p_workflow_id IS NOT NULL THEN p_claim::text END
     WHERE projection.id = p_id AND projection.status = 'pending';
    UPDATE forebay.workflow_queue_job job
       SET claimed_via = 'projector', claim_id = p_claim, lease_until = NULL
     WHERE job.id = p_id AND job.claimed_via = 'sql';
END $fn$;

-- Ends a job in status processing, if its current claim is unchanged: failed if there is an error, else completed.
-- Returns whether it changed the job. If p_retry is false, a failed job is not retried.
CREATE OR REPLACE FUNCTION forebay_r1.finish_job(p_id uuid, p_result jsonb, p_error text, p_stack text, p_retry boolean)
RETURNS boolean
LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Ends the job of an execution as the execution ended. p_status is null if the execution's row is missing: then the job
-- is not retried, because the lost execution may have done its work. Returns whether the job was processing.
--
-- A transient error (a full disk) is raised, and the caller repeats the whole end. Any other error is only logged, and
-- the answer is null, so that it never keeps an execution from ending; the recovery loop retries the job.
CREATE OR REPLACE FUNCTION forebay_r1.end_job_of(
    p_job uuid, p_execution uuid, p_status text, p_output jsonb, p_error jsonb) RETURNS boolean
LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Ends the jobs of ended executions that an event started. If the row of a job is locked, reconcile_jobs ends the job
-- later. The worker role may lock rows as long as it likes, and the end of an execution must not wait for that, because
-- it frees a slot.
CREATE OR REPLACE FUNCTION forebay_r1.end_jobs_of(p_executions uuid[]) RETURNS int LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Fails the jobs of executions whose rows are missing. Locked rows are handled as in end_jobs_of.
CREATE OR REPLACE FUNCTION forebay_r1.fail_jobs_of_missing(p_executions uuid[]) RETURNS int LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- The chain of failures of an execution as text: the execution's own error, then each failed node with its earlier
-- attempts.
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
