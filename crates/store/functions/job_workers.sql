-- Jobs for workers that use the API: which are pending, claims, heartbeats and ends. A claimed job changes only under
-- its claim.

-- The event types of pending jobs that match p_types (exact, or a prefix such as order.*), in one workspace or in all
-- if p_workspace is null. Skips through the index from type to type within a prefix, at most p_most types each.
CREATE OR REPLACE FUNCTION forebay_r1.pending_types(p_workspace uuid, p_types text[], p_most int) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
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
END $fn$;

-- The oldest p_limit pending jobs of these types, of one workspace or of all if p_workspace is null. Each type is read
-- separately, so the backlog of other types and workspaces is not read. The condition is a range that contains one
-- type, not an equality: only the index by type has that order. If the statistics know only one type, an equality would
-- make the planner choose the index by age.
CREATE OR REPLACE FUNCTION forebay_r1.pending_jobs_of_types(p_workspace uuid, p_types text[], p_limit int)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
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
END $fn$;

-- Claims pending jobs for a worker that uses the API, oldest first, until their payloads exceed 1 MiB. Filters, unless
-- null: one workspace, these types (exact, or a prefix such as order.*), this id. Each job gets its own claim with the
-- requested lease.
CREATE OR REPLACE FUNCTION forebay_r1.claim_jobs(
    p_workspace uuid, p_types text[], p_id uuid, p_worker text, p_lease_s int, p_limit int)
RETURNS TABLE (job public.workflow_queue_projection, workspace_id uuid, claim uuid, lease_until timestamptz)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Locks a job of this workspace for a worker that uses the API. Returns what the claim p_claim means for it: held,
-- completed or failed (this claim ended it), lost, or null if there is no such job. A job of the projector is never
-- held: its claim is the execution's id, which is not secret.
CREATE OR REPLACE FUNCTION forebay_r1.job_claim_state(p_id uuid, p_workspace uuid, p_claim uuid) RETURNS text
LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Extends a claim that was made through the API, by its own lease or by p_lease_s this once. Also stores the ids of the
-- workflow run that works on the job.
CREATE OR REPLACE FUNCTION forebay_r1.heartbeat_job(
    p_id uuid, p_workspace uuid, p_claim uuid, p_lease_s int, p_workflow_id text, p_run_id text)
RETURNS TABLE (answer text, lease_until timestamptz) LANGUAGE plpgsql AS $fn$
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
END $fn$;

-- Ends a job that this claim holds. Returns ended, lost, or null if there is no such job. Repeating the same end
-- changes nothing.
CREATE OR REPLACE FUNCTION forebay_r1.end_job(
    p_id uuid, p_workspace uuid, p_claim uuid, p_result jsonb, p_error text, p_stack text) RETURNS text
LANGUAGE plpgsql AS $fn$
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
END $fn$;
