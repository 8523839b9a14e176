-- Tasks: handed out to the user's own workers, and ended by whoever still holds the claim.

-- Hands out open tasks of some queues: all of one workspace's, or workspaces in turn behind p_after, an eighth of what
-- is wanted at a time. A row a task with its claim, and a last one without: the workspace that was served last (null:
-- none was). What it costs depends on what is wanted and on how many queues are named, not on how much is open. Claims
-- touch no execution row: a task whose execution ends at this moment is closed behind it.
CREATE OR REPLACE FUNCTION forebay_r1.claim_tasks(
    p_queues text[], p_workspace uuid, p_after uuid, p_worker text, p_limit int, p_lease_s float8)
RETURNS TABLE (task uuid, claim uuid, place uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_place uuid := coalesce(p_workspace, p_after, v_nil);
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
    -- What this round of the workspaces has brought; a round from the middle is followed by one from the start.
    v_round int := 1;
BEGIN
    FOR step IN 1..1000 LOOP
        EXIT WHEN v_left <= 0;
        v_next := CASE WHEN p_workspace IS NOT NULL THEN p_workspace ELSE (
            SELECT n.id FROM unnest(p_queues) AS q(name)
             CROSS JOIN LATERAL (SELECT a.workspace_id AS id FROM forebay.workflow_execution_ask a
                                  WHERE a.status = 'OPEN' AND a.kind = 'TASK' AND a.queue = q.name AND a.workspace_id > v_place
                                  ORDER BY a.workspace_id LIMIT 1) n
             ORDER BY n.id LIMIT 1) END;
        IF v_next IS NULL THEN
            EXIT WHEN v_place = v_nil OR v_round = 0;
            v_place := v_nil;
            v_round := 0;
            CONTINUE;
        END IF;
        v_place := v_next;
        v_want := least(v_each, v_left);
        v_at := '-infinity';
        v_id := v_nil;
        -- The oldest of all the queues; those that another claim has in hand at this moment are passed over for the
        -- next ones.
        WHILE v_want > 0 LOOP
            -- A few at a time, because the answer ends where it becomes large.
            v_step := least(v_want, 8);
            SELECT array_agg(n.id), (array_agg(n.opened_at ORDER BY n.opened_at DESC, n.id DESC))[1],
                   (array_agg(n.id ORDER BY n.opened_at DESC, n.id DESC))[1]
              INTO v_ids, v_at, v_id
              FROM (SELECT n.id, n.opened_at FROM (SELECT DISTINCT name FROM unnest(p_queues) AS q(name)) q
                     CROSS JOIN LATERAL (
                           SELECT a.id, a.opened_at FROM forebay.workflow_execution_ask a
                            WHERE a.status = 'OPEN' AND a.kind = 'TASK' AND a.queue = q.name AND a.workspace_id = v_place
                              AND (a.opened_at, a.id) > (v_at, v_id) AND (a.expires_at IS NULL OR a.expires_at > clock_timestamp())
                            ORDER BY a.opened_at, a.id LIMIT v_step) n
                     ORDER BY n.opened_at, n.id LIMIT v_step) n;
            EXIT WHEN v_ids IS NULL;
            RETURN QUERY
            UPDATE forebay.workflow_execution_ask a
               SET status = 'CLAIMED', claim_id = gen_random_uuid(), worker = p_worker, claim_lease_s = coalesce(p_lease_s, a.lease_s),
                   lease_until = clock_timestamp() + make_interval(secs => coalesce(p_lease_s, a.lease_s)),
                   deliveries = a.deliveries + 1, progress = NULL
             WHERE a.id = ANY (ARRAY(
                   SELECT a.id FROM forebay.workflow_execution_ask a WHERE a.id = ANY (v_ids) AND a.status = 'OPEN' FOR UPDATE SKIP LOCKED))
               AND a.status = 'OPEN'
            RETURNING a.id, a.claim_id, NULL::uuid;
            GET DIAGNOSTICS v_taken = ROW_COUNT;
            v_served := CASE WHEN v_taken > 0 THEN v_place ELSE v_served END;
            v_want := v_want - v_taken;
            v_left := v_left - v_taken;
            v_round := v_round + v_taken;
            v_bytes := v_bytes + coalesce((
                SELECT sum(octet_length(a.input::text)) FROM forebay.workflow_execution_ask a
                 WHERE a.id = ANY (v_ids) AND a.status = 'CLAIMED' AND a.worker = p_worker), 0);
            IF v_bytes > 1048576 THEN
                v_want := 0;
                v_left := 0;
            END IF;
        END LOOP;
        EXIT WHEN p_workspace IS NOT NULL;
    END LOOP;
    RETURN QUERY SELECT NULL::uuid, NULL::uuid, v_served;
END $fn$;

-- Ends a task under its claim. told: 'accepted'; 'repeat' (this claim ended it so before); 'answered' (this claim ended
-- it otherwise before); 'lost' (the claim is another's by now, or time is up, or the execution ended); 'missing'.
CREATE OR REPLACE FUNCTION forebay_r1.end_task(
    p_task uuid, p_workspace uuid, p_claim uuid, p_outcome text, p_output jsonb, p_error jsonb)
RETURNS TABLE (told text, engine text, holder uuid, owner uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    a forebay.workflow_execution_ask;
    v_lives boolean;
    v_told text;
BEGIN
    SELECT * INTO a FROM forebay.workflow_execution_ask a
     WHERE a.id = p_task AND a.kind = 'TASK' AND a.workspace_id = coalesce(p_workspace, a.workspace_id);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', NULL::text, NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_lives := forebay_r1.lock_tree(a.execution_id);
    SELECT * INTO a FROM forebay.workflow_execution_ask a WHERE a.id = p_task FOR UPDATE;
    v_told := CASE WHEN a.id IS NULL THEN 'missing'
                   WHEN a.claim_id = p_claim AND a.status = 'CLAIMED' AND v_lives
                        AND coalesce(a.expires_at > clock_timestamp(), true) THEN 'accepted'
                   WHEN a.claim_id = p_claim AND a.status IN ('ANSWERED', 'TAKEN')
                        THEN CASE WHEN a.outcome = p_outcome THEN 'repeat' ELSE 'answered' END
                   WHEN a.ended_claim = p_claim THEN 'repeat'
                   ELSE 'lost' END;
    UPDATE forebay.workflow_execution_ask a
       SET status = 'ANSWERED', outcome = p_outcome, output = p_output, error = p_error, answered_by = a.worker,
           answered_at = clock_timestamp(), lease_until = NULL
     WHERE a.id = p_task AND a.status = 'CLAIMED' AND a.claim_id = p_claim AND v_told = 'accepted';
    RETURN QUERY SELECT v_told, CASE WHEN v_told = 'accepted' THEN forebay_r1.wake_run(a.holder) END, a.holder,
                        (SELECT e.owner FROM forebay.workflow_execution e WHERE e.id = a.holder);
END $fn$;
