-- Tasks: work for the user's own workers. A worker claims a task, and ends it under that claim.

-- Claims open tasks of some queues: of one workspace, or of all workspaces in turn after p_after, an eighth of p_limit
-- from each. Returns a row per task with its claim. The last row has no task, but the last workspace from which a task
-- was claimed (null: none). The cost depends on p_limit and the number of queues, not on how many tasks are open. A
-- claim locks no execution row; if the execution ends at this moment, the task is closed afterwards.
CREATE OR REPLACE FUNCTION forebay_r1.claim_tasks(
    p_queues text[], p_workspace uuid, p_after uuid, p_worker text, p_limit int, p_lease_s float8)
RETURNS TABLE (task uuid, claim uuid, last_workspace uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
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
END $fn$;

-- Ends a task under its claim. result:
--   accepted       the result is stored
--   repeated       this claim already ended it with the same result
--   other_result   this claim already ended it with another result
--   lost           another claim holds it, its time is up, or the execution has ended
--   missing        there is no such task
CREATE OR REPLACE FUNCTION forebay_r1.end_task(
    p_task uuid, p_workspace uuid, p_claim uuid, p_outcome text, p_output jsonb, p_error jsonb)
RETURNS TABLE (result text, engine text, holder uuid, owner uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
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
END $fn$;
