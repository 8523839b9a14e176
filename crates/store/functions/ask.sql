-- What nodes ask of the world, and its answers.
--
-- Lock order: the root of a tree, then its child, then asks. Whoever answers locks the holder's row, so that the run is
-- told in the same commit; whoever ends an execution has its row and closes its asks.

-- Asks, or says how it stands. The fence is that of functions/record.sql: owner, epoch and RUNNING of the holder under
-- its row's lock, and then RUNNING of the execution itself, if it is a child.
-- The same attempt again changes nothing but that an answer counts as seen; a later one opens the ask anew. An answer
-- that came before anybody asked is taken at once.
CREATE OR REPLACE FUNCTION forebay_r1.open_wait(
    p_holder uuid, p_owner uuid, p_epoch bigint, p_execution uuid, p_node text, p_iteration int, p_workspace uuid,
    p_attempt int, p_kind text, p_event text, p_match text, p_queue text, p_lease_s float8, p_input jsonb,
    p_expires_s float8)
RETURNS TABLE (held boolean, status text, attempt int, expires_in_s float8, outcome text, output jsonb, error jsonb,
               answered_by text, answered_at timestamptz)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_ask;
    opened boolean := false;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution holder
     WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
       AND holder.status = 'RUNNING'
     FOR UPDATE;
    IF FOUND AND p_execution <> p_holder THEN
        PERFORM 1 FROM forebay.workflow_execution execution
         WHERE execution.id = p_execution AND execution.root = p_holder AND execution.status = 'RUNNING' FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::text, 0, NULL::float8, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text,
                            NULL::timestamptz;
        RETURN;
    END IF;
    INSERT INTO forebay.workflow_execution_ask (execution_id, node, iteration, id, workspace_id, holder, kind, attempt,
        status, event_type, match, events_from, look, queue, lease_s, input, opened_at, expires_at)
    SELECT p_execution, p_node, p_iteration, forebay.new_id(), p_workspace, p_holder, p_kind, p_attempt, 'OPEN',
           p_event, p_match, CASE WHEN p_event IS NOT NULL THEN execution.created_at END, p_event IS NOT NULL, p_queue,
           p_lease_s, p_input, clock_timestamp(), clock_timestamp() + make_interval(secs => p_expires_s)
      FROM forebay.workflow_execution execution WHERE execution.id = p_execution
    ON CONFLICT DO NOTHING;
    opened := FOUND;
    SELECT * INTO v_wait FROM forebay.workflow_execution_ask wait
     WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration FOR UPDATE;
    IF v_wait.attempt = 0 AND v_wait.status = 'ANSWERED' THEN
        UPDATE forebay.workflow_execution_ask wait
           SET status = 'TAKEN', seen_at = clock_timestamp(), holder = p_holder, attempt = p_attempt, input = p_input,
               opened_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'ANSWERED'
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt < p_attempt AND v_wait.status <> 'CLOSED' THEN
        opened := true;
        UPDATE forebay.workflow_execution_ask wait
           SET status = 'OPEN', holder = p_holder, attempt = p_attempt, event_type = p_event, match = p_match,
               events_from = CASE WHEN p_event IS NOT NULL
                                  THEN (SELECT execution.created_at
                                          FROM forebay.workflow_execution execution
                                         WHERE execution.id = p_execution) END,
               look = p_event IS NOT NULL, look_xid = NULL, queue = p_queue, lease_s = p_lease_s, input = p_input,
               opened_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => p_expires_s),
               ended_claim = CASE WHEN wait.outcome IS NOT NULL THEN wait.claim_id END, claim_id = NULL, worker = NULL,
               claim_lease_s = NULL, lease_until = NULL, progress = NULL, deliveries = 0, lost = 0, outcome = NULL,
               output = NULL, error = NULL, answered_by = NULL, answered_at = NULL, seen_at = NULL
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.attempt < p_attempt
           AND wait.status IN ('OPEN', 'CLAIMED', 'ANSWERED', 'TAKEN', 'EXPIRED')
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt = p_attempt AND v_wait.status IN ('OPEN', 'CLAIMED')
          AND v_wait.expires_at <= clock_timestamp() THEN
        UPDATE forebay.workflow_execution_ask wait
           SET status = 'EXPIRED', lease_until = NULL, look = false, seen_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status IN ('OPEN', 'CLAIMED')
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt = p_attempt AND v_wait.status IN ('ANSWERED', 'EXPIRED') AND v_wait.seen_at IS NULL THEN
        UPDATE forebay.workflow_execution_ask wait
           SET status = CASE wait.status WHEN 'ANSWERED' THEN 'TAKEN' ELSE wait.status END, seen_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status IN ('ANSWERED', 'EXPIRED')
        RETURNING * INTO v_wait;
    END IF;
    IF opened AND v_wait.event_type IS NOT NULL THEN
        PERFORM forebay_r1.note_wait(v_wait);
    ELSIF opened AND v_wait.kind = 'TASK' THEN
        PERFORM forebay.notify_change();
    END IF;
    RETURN QUERY SELECT true, v_wait.status, v_wait.attempt,
                        extract(epoch FROM v_wait.expires_at - clock_timestamp())::float8, v_wait.outcome,
                        v_wait.output, v_wait.error, v_wait.answered_by, v_wait.answered_at;
END $fn$;

-- Notes a wait: what happened since its execution was made is to be judged for it, in pages.
CREATE OR REPLACE FUNCTION forebay_r1.note_wait(p_ask forebay.workflow_execution_ask) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $fn$
BEGIN
    INSERT INTO forebay.workflow_execution_candidate (workspace_id, execution_id, node, iteration, after_at,
                                                      after_sequence)
    VALUES (p_ask.workspace_id, p_ask.execution_id, p_ask.node, p_ask.iteration, p_ask.events_from, 0);
    PERFORM forebay.notify_change();
END $fn$;

-- The second look of waits for events. An event whose writer did not see the wait has a number that was drawn before
-- the wait was committed, and so one below any that is drawn by somebody who sees it: when all of those are over, every
-- such event is to be seen. First such a number is drawn, and then waited for.
CREATE OR REPLACE FUNCTION forebay_r1.look_again(p_limit int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_ask;
    looked bigint := 0;
BEGIN
    FOR v_wait IN
        UPDATE forebay.workflow_execution_ask wait SET look = false, look_xid = NULL
         WHERE wait.id = ANY (ARRAY(
               SELECT wait.id FROM forebay.workflow_execution_ask wait
                WHERE wait.look AND wait.look_xid <= pg_snapshot_xmin(pg_current_snapshot()) AND wait.status = 'OPEN'
                ORDER BY wait.look_xid LIMIT p_limit FOR UPDATE SKIP LOCKED))
           AND wait.status = 'OPEN'
        RETURNING wait.*
    LOOP
        PERFORM forebay_r1.note_wait(v_wait);
        looked := looked + 1;
    END LOOP;
    UPDATE forebay.workflow_execution_ask wait SET look_xid = pg_current_xact_id()
     WHERE wait.id = ANY (ARRAY(
           SELECT wait.id FROM forebay.workflow_execution_ask wait
            WHERE wait.look AND wait.look_xid IS NULL AND wait.status = 'OPEN' LIMIT p_limit FOR UPDATE SKIP LOCKED))
       AND wait.status = 'OPEN';
    RETURN looked;
END $fn$;

-- What came for the asks of a holder's tree since it last looked. That the run was called is noted as heard: unless
-- somebody wants it to end, which it must not sleep over.
CREATE OR REPLACE FUNCTION forebay_r1.take_answers(p_holder uuid, p_owner uuid, p_epoch bigint)
RETURNS TABLE (held boolean, execution uuid, node text, iteration int, attempt int, status text, outcome text,
               output jsonb, error jsonb, answered_by text, answered_at timestamptz)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
BEGIN
    UPDATE forebay.workflow_execution holder
       SET wake_at = CASE WHEN holder.cancel_requested_at IS NOT NULL THEN holder.wake_at END
     WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
       AND holder.status = 'RUNNING';
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb,
                            NULL::text, NULL::timestamptz;
        RETURN;
    END IF;
    UPDATE forebay.workflow_execution_ask wait SET status = 'EXPIRED', lease_until = NULL, look = false
     WHERE wait.holder = p_holder AND wait.status IN ('OPEN', 'CLAIMED') AND wait.expires_at <= clock_timestamp();
    RETURN QUERY
    UPDATE forebay.workflow_execution_ask wait
       SET status = CASE wait.status WHEN 'ANSWERED' THEN 'TAKEN' ELSE wait.status END, seen_at = clock_timestamp()
     WHERE wait.holder = p_holder AND wait.seen_at IS NULL AND wait.status IN ('ANSWERED', 'EXPIRED')
    RETURNING true, wait.execution_id, wait.node, wait.iteration, wait.attempt, wait.status, wait.outcome, wait.output,
              wait.error, wait.answered_by, wait.answered_at;
    RETURN QUERY SELECT true, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb,
                        NULL::text, NULL::timestamptz;
END $fn$;

-- Locks the root of an execution's tree and then the execution, whatever their ids; answers whether it has not ended
-- (null: there is none).
CREATE OR REPLACE FUNCTION forebay_r1.lock_tree(p_execution uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
BEGIN
    PERFORM 1
      FROM forebay.workflow_execution root
     WHERE root.id = (SELECT execution.root FROM forebay.workflow_execution execution WHERE execution.id = p_execution)
     FOR UPDATE;
    PERFORM 1 FROM forebay.workflow_execution execution WHERE execution.id = p_execution FOR UPDATE;
    RETURN (SELECT execution.completed_at IS NULL
              FROM forebay.workflow_execution execution
             WHERE execution.id = p_execution);
END $fn$;

-- Calls a run whose row is locked: now, whether it has an owner or not. Answers its engine.
CREATE OR REPLACE FUNCTION forebay_r1.wake_run(p_holder uuid) RETURNS text
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    UPDATE forebay.workflow_execution execution SET wake_at = least(execution.wake_at, clock_timestamp())
     WHERE execution.id = p_holder AND execution.status = 'RUNNING' RETURNING execution.engine
$fn$;

-- Why an answer would be heard by nobody: 'settled' (the node, the item or its loop), 'past' (the loop's list is
-- shorter). Null: it may be.
CREATE OR REPLACE FUNCTION forebay_r1.useless_answer(p_execution uuid, p_node text, p_iteration int) RETURNS text
LANGUAGE sql STABLE SET enable_seqscan = off AS $fn$
    SELECT CASE WHEN bool_or(node.status NOT IN ('PENDING', 'RUNNING', 'RETRYING')) THEN 'settled'
                WHEN bool_or(node.iteration = 0 AND jsonb_typeof(node.input -> 'items') = 'array'
                             AND jsonb_array_length(node.input -> 'items') < p_iteration) THEN 'past' END
      FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration IN (0, p_iteration)
$fn$;

-- Answers a wait. told: 'accepted'; 'early' (nobody asked yet: it is kept until somebody does); 'answered' (somebody
-- else was first); 'used' (this token was); 'expired'; 'over' (the execution ended); 'settled' (its node did, without
-- it); 'past' (its loop has no such item); 'missing'. With p_open nothing is kept early; p_token is shown
-- instead of a workspace, and used up.
CREATE OR REPLACE FUNCTION forebay_r1.answer_wait(
    p_execution uuid, p_node text, p_iteration int, p_workspace uuid, p_token bytea, p_output jsonb, p_by text,
    p_open boolean)
RETURNS TABLE (told text, engine text, holder uuid, owner uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_ask;
    v_token forebay.workflow_execution_token;
    v_lives boolean;
    v_told text;
    v_useless text;
    v_workspace uuid;
BEGIN
    v_workspace := (SELECT execution.workspace_id FROM forebay.workflow_execution execution
                     WHERE execution.id = p_execution
                       AND execution.workspace_id = coalesce(p_workspace, execution.workspace_id));
    IF v_workspace IS NULL THEN
        RETURN QUERY SELECT 'missing', NULL::text, NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_lives := forebay_r1.lock_tree(p_execution);
    IF p_token IS NOT NULL THEN
        SELECT * INTO v_token FROM forebay.workflow_execution_token token
         WHERE token.hash = p_token AND token.execution_id = p_execution AND token.node = p_node
           AND token.iteration = p_iteration
         FOR UPDATE;
        v_told := CASE WHEN v_token.hash IS NULL THEN 'missing' WHEN v_token.used_at IS NOT NULL THEN 'used'
                       WHEN v_token.expires_at <= clock_timestamp() THEN 'missing' END;
    END IF;
    v_told := coalesce(v_told, CASE WHEN v_lives IS NULL THEN 'missing' WHEN NOT v_lives THEN 'over' END);
    v_useless := forebay_r1.useless_answer(p_execution, p_node, p_iteration);
    IF v_told IS NULL AND NOT p_open AND v_useless IS NULL THEN
        INSERT INTO forebay.workflow_execution_ask (execution_id, node, iteration, id, workspace_id, kind, attempt,
            status, outcome, output, answered_by, answered_at)
        VALUES (p_execution, p_node, p_iteration, forebay.new_id(), v_workspace, 'WAIT', 0, 'ANSWERED', 'COMPLETED',
            p_output, p_by, clock_timestamp())
        ON CONFLICT DO NOTHING;
        v_told := CASE WHEN FOUND THEN 'early' END;
    END IF;
    IF v_told IS NULL THEN
        SELECT * INTO v_wait FROM forebay.workflow_execution_ask wait
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration FOR UPDATE;
        v_told := CASE WHEN v_wait.id IS NULL AND NOT p_open AND v_useless IS NOT NULL THEN v_useless
                       WHEN v_wait.id IS NULL OR v_wait.kind <> 'WAIT' THEN 'missing'
                       WHEN v_wait.status = 'OPEN' AND v_wait.expires_at <= clock_timestamp() THEN 'expired'
                       WHEN v_wait.status = 'OPEN' THEN coalesce(v_useless, 'accepted')
                       WHEN v_wait.status IN ('ANSWERED', 'TAKEN') THEN 'answered'
                       WHEN v_wait.status = 'EXPIRED' THEN 'expired' ELSE 'over' END;
        UPDATE forebay.workflow_execution_ask wait
           SET status = 'ANSWERED', outcome = 'COMPLETED', output = p_output, answered_by = p_by,
               answered_at = clock_timestamp(), look = false
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'OPEN' AND v_told = 'accepted';
        UPDATE forebay.workflow_execution_ask wait SET status = 'EXPIRED', look = false
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'OPEN' AND v_told = 'expired';
    END IF;
    IF v_told IN ('accepted', 'early') THEN
        UPDATE forebay.workflow_execution_token token
           SET used_at = clock_timestamp()
         WHERE token.hash = p_token AND token.used_at IS NULL;
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        VALUES (v_workspace, p_by, 'wait.answer', 'execution', p_execution,
                jsonb_build_object('node', p_node, 'iteration', p_iteration));
    END IF;
    RETURN QUERY SELECT v_told, CASE WHEN v_told IN ('accepted', 'expired') THEN forebay_r1.wake_run(v_wait.holder) END,
                        v_wait.holder,
                        (SELECT holder.owner FROM forebay.workflow_execution holder WHERE holder.id = v_wait.holder);
END $fn$;

-- What an execution's end leaves open is closed, in the transaction that ends it.
CREATE OR REPLACE FUNCTION forebay_r1.close_waits(p_ids uuid[]) RETURNS void
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    UPDATE forebay.workflow_execution_ask wait SET status = 'CLOSED', lease_until = NULL, look = false
     WHERE wait.execution_id = ANY (p_ids) AND wait.status IN ('OPEN', 'CLAIMED')
$fn$;

-- Takes the time from what is overdue, and tasks from workers that are silent: the p_most-th such in a row fails the
-- attempt with p_error. A row for each: 'expired', 'lost' (offered again) or 'failed', with whom to tell. An execution
-- that somebody else has locked is left for the next time.
CREATE OR REPLACE FUNCTION forebay_r1.expire_waits(p_limit int, p_most int, p_error jsonb)
RETURNS TABLE (what text, engine text, holder uuid, owner uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_holders uuid[];
BEGIN
    RETURN QUERY
    UPDATE forebay.workflow_execution_ask wait
       SET status = 'OPEN', lost = wait.lost + 1, claim_id = NULL, worker = NULL, claim_lease_s = NULL,
           lease_until = NULL
     WHERE wait.id = ANY (ARRAY(
           SELECT wait.id FROM forebay.workflow_execution_ask wait
            WHERE wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp() AND wait.lost < p_most - 1
            ORDER BY wait.lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED))
       AND wait.status = 'CLAIMED'
    RETURNING 'lost', NULL::text, NULL::uuid, NULL::uuid;

    v_holders := ARRAY(
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.id = ANY (ARRAY(
               SELECT wait.holder FROM forebay.workflow_execution_ask wait
                WHERE wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp() AND wait.lost >= p_most - 1
                ORDER BY wait.lease_until LIMIT p_limit) || ARRAY(
               SELECT wait.holder FROM forebay.workflow_execution_ask wait
                WHERE wait.status IN ('OPEN', 'CLAIMED') AND wait.expires_at <= clock_timestamp()
                ORDER BY wait.expires_at LIMIT p_limit))
         ORDER BY execution.id FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    WITH expired AS (
        UPDATE forebay.workflow_execution_ask wait SET status = 'EXPIRED', lease_until = NULL, look = false
         WHERE wait.holder = ANY (v_holders) AND wait.status IN ('OPEN', 'CLAIMED')
           AND wait.expires_at <= clock_timestamp()
        RETURNING 'expired' AS what, wait.holder)
    SELECT expired.what, forebay_r1.wake_run(expired.holder), expired.holder, holder.owner
      FROM expired
      JOIN forebay.workflow_execution holder ON holder.id = expired.holder;
    RETURN QUERY
    WITH failed AS (
        UPDATE forebay.workflow_execution_ask wait
           SET status = 'ANSWERED', outcome = 'FAILED', error = p_error, answered_by = 'forebay',
               answered_at = clock_timestamp(), lost = wait.lost + 1, claim_id = NULL, worker = NULL, lease_until = NULL
         WHERE wait.holder = ANY (v_holders) AND wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp()
           AND wait.lost >= p_most - 1
        RETURNING 'failed' AS what, wait.holder)
    SELECT failed.what, forebay_r1.wake_run(failed.holder), failed.holder, holder.owner
      FROM failed
      JOIN forebay.workflow_execution holder ON holder.id = failed.holder;
END $fn$;
