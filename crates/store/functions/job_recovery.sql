-- Makes jobs pending again, or settles them, if nobody else will: failed jobs, and jobs whose worker, binding or
-- execution is gone.

-- Makes failed jobs pending again once their backoff is over. p_waits[n] is the backoff after failure n, in seconds.
CREATE OR REPLACE FUNCTION forebay_r1.retry_jobs(p_waits float8[], p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Makes jobs pending again whose lease expired because their worker is silent. Jobs that were claimed by plain SQL or
-- through the API have a lease; jobs of the projector have none.
CREATE OR REPLACE FUNCTION forebay_r1.recover_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Gives due jobs whose binding was deleted to external workers, at most p_limit; the projector no longer claims them. A
-- binding is deleted with its definition, or when the definition is published with another event type. An event may
-- also be folded while its binding is being deleted. A deleted binding never comes back.
CREATE OR REPLACE FUNCTION forebay_r1.release_unbound_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;

-- Settles jobs of the projector whose execution has ended or is missing. If the execution ended, the job ends like it.
-- If the row is missing and the queue item is a dead letter, the job fails. If the row is missing and the queue item is
-- PENDING or gone, the job becomes pending again. If the queue item of a missing execution holds a slot, its run may be
-- alive, so the job waits until that item ends.
CREATE OR REPLACE FUNCTION forebay_r1.reconcile_jobs(p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $fn$
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
END $fn$;
