-- Waits of nodes, and their answers.
--
-- Lock order: the root of a tree, then its child, then waits. Answering a wait locks the holder's row, so that the
-- answer and the holder's wake-up are one commit. Ending an execution locks its row and closes its waits.

-- Opens a wait, or returns its state. The fence is that of functions/record.sql: owner, epoch and RUNNING of the
-- holder, checked under its row's lock. For a child, its own execution must be RUNNING too. A repeated call for the
-- same attempt only marks an answer as read; a call for a later attempt opens the wait again. If an answer arrived
-- before the wait was opened, it is read immediately.
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
    v_wait forebay.workflow_execution_wait;
    v_opened boolean := false;
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
    INSERT INTO forebay.workflow_execution_wait (execution_id, node, iteration, id, workspace_id, holder, kind, attempt,
        status, event_type, match, events_from, recheck, queue, lease_s, input, opened_at, expires_at)
    SELECT p_execution, p_node, p_iteration, forebay.new_id(), p_workspace, p_holder, p_kind, p_attempt, 'OPEN',
           p_event, p_match, CASE WHEN p_event IS NOT NULL THEN execution.created_at END, p_event IS NOT NULL, p_queue,
           p_lease_s, p_input, clock_timestamp(), clock_timestamp() + make_interval(secs => p_expires_s)
      FROM forebay.workflow_execution execution WHERE execution.id = p_execution
    ON CONFLICT DO NOTHING;
    v_opened := FOUND;
    SELECT * INTO v_wait FROM forebay.workflow_execution_wait wait
     WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration FOR UPDATE;
    IF v_wait.attempt = 0 AND v_wait.status = 'ANSWERED' THEN
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'RECEIVED', read_at = clock_timestamp(), holder = p_holder, attempt = p_attempt,
               input = p_input, opened_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'ANSWERED'
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt < p_attempt AND v_wait.status <> 'CLOSED' THEN
        v_opened := true;
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'OPEN', holder = p_holder, attempt = p_attempt, event_type = p_event, match = p_match,
               events_from = CASE WHEN p_event IS NOT NULL
                                  THEN (SELECT execution.created_at
                                          FROM forebay.workflow_execution execution
                                         WHERE execution.id = p_execution) END,
               recheck = p_event IS NOT NULL, recheck_xid = NULL, queue = p_queue, lease_s = p_lease_s, input = p_input,
               opened_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => p_expires_s),
               ended_claim = CASE WHEN wait.outcome IS NOT NULL THEN wait.claim_id END, claim_id = NULL, worker = NULL,
               claim_lease_s = NULL, lease_until = NULL, progress = NULL, deliveries = 0, lost = 0, outcome = NULL,
               output = NULL, error = NULL, answered_by = NULL, answered_at = NULL, read_at = NULL
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.attempt < p_attempt
           AND wait.status IN ('OPEN', 'CLAIMED', 'ANSWERED', 'RECEIVED', 'EXPIRED')
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt = p_attempt AND v_wait.status IN ('OPEN', 'CLAIMED')
          AND v_wait.expires_at <= clock_timestamp() THEN
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'EXPIRED', lease_until = NULL, recheck = false, read_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status IN ('OPEN', 'CLAIMED')
        RETURNING * INTO v_wait;
    ELSIF v_wait.attempt = p_attempt AND v_wait.status IN ('ANSWERED', 'EXPIRED') AND v_wait.read_at IS NULL THEN
        UPDATE forebay.workflow_execution_wait wait
           SET status = CASE wait.status WHEN 'ANSWERED' THEN 'RECEIVED' ELSE wait.status END,
               read_at = clock_timestamp()
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status IN ('ANSWERED', 'EXPIRED')
        RETURNING * INTO v_wait;
    END IF;
    IF v_opened AND v_wait.event_type IS NOT NULL THEN
        PERFORM forebay_r1.add_candidate_of_wait(v_wait);
    ELSIF v_opened AND v_wait.kind = 'TASK' THEN
        PERFORM forebay.notify_change();
    END IF;
    RETURN QUERY SELECT true, v_wait.status, v_wait.attempt,
                        extract(epoch FROM v_wait.expires_at - clock_timestamp())::float8, v_wait.outcome,
                        v_wait.output, v_wait.error, v_wait.answered_by, v_wait.answered_at;
END $fn$;

-- Adds a candidate row for a wait. All events since the wait's execution was created have to be evaluated for it, in
-- pages.
CREATE OR REPLACE FUNCTION forebay_r1.add_candidate_of_wait(p_wait forebay.workflow_execution_wait) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $fn$
BEGIN
    INSERT INTO forebay.workflow_execution_candidate (workspace_id, execution_id, node, iteration, after_at,
                                                      after_sequence)
    VALUES (p_wait.workspace_id, p_wait.execution_id, p_wait.node, p_wait.iteration, p_wait.events_from, 0);
    PERFORM forebay.notify_change();
END $fn$;

-- The second check of waits for events. It finds events whose writer did not see the wait. Such a writer got its
-- transaction id before the wait was committed. So its id is lower than any id that a transaction gets after it sees
-- the wait. The first call gets such an id and stores it as recheck_xid. Once every transaction below recheck_xid has
-- ended, every such event is visible, and a later call adds the candidate.
CREATE OR REPLACE FUNCTION forebay_r1.recheck_events(p_limit int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_wait;
    v_count bigint := 0;
BEGIN
    FOR v_wait IN
        UPDATE forebay.workflow_execution_wait wait SET recheck = false, recheck_xid = NULL
         WHERE wait.id = ANY (ARRAY(
               SELECT wait.id FROM forebay.workflow_execution_wait wait
                WHERE wait.recheck AND wait.recheck_xid <= pg_snapshot_xmin(pg_current_snapshot())
                  AND wait.status = 'OPEN'
                ORDER BY wait.recheck_xid LIMIT p_limit FOR UPDATE SKIP LOCKED))
           AND wait.status = 'OPEN'
        RETURNING wait.*
    LOOP
        PERFORM forebay_r1.add_candidate_of_wait(v_wait);
        v_count := v_count + 1;
    END LOOP;
    UPDATE forebay.workflow_execution_wait wait SET recheck_xid = pg_current_xact_id()
     WHERE wait.id = ANY (ARRAY(
           SELECT wait.id FROM forebay.workflow_execution_wait wait
            WHERE wait.recheck AND wait.recheck_xid IS NULL AND wait.status = 'OPEN'
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED))
       AND wait.status = 'OPEN';
    RETURN v_count;
END $fn$;

-- Returns the waits of a holder's tree that were answered or expired since its last call, and marks them as read.
-- Deletes the run's request to wake, unless the run's end was requested too: the run must not miss that.
CREATE OR REPLACE FUNCTION forebay_r1.read_answers(p_holder uuid, p_owner uuid, p_epoch bigint)
RETURNS TABLE (held boolean, execution uuid, node text, iteration int, attempt int, status text, outcome text,
               output jsonb, error jsonb, answered_by text, answered_at timestamptz)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM forebay.workflow_execution holder
     WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
       AND holder.status = 'RUNNING'
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb,
                            NULL::text, NULL::timestamptz;
        RETURN;
    END IF;
    DELETE FROM forebay.run_request request WHERE request.execution_id = p_holder AND NOT request.ends;
    UPDATE forebay.workflow_execution_wait wait SET status = 'EXPIRED', lease_until = NULL, recheck = false
     WHERE wait.holder = p_holder AND wait.status IN ('OPEN', 'CLAIMED') AND wait.expires_at <= clock_timestamp();
    RETURN QUERY
    UPDATE forebay.workflow_execution_wait wait
       SET status = CASE wait.status WHEN 'ANSWERED' THEN 'RECEIVED' ELSE wait.status END, read_at = clock_timestamp()
     WHERE wait.holder = p_holder AND wait.read_at IS NULL AND wait.status IN ('ANSWERED', 'EXPIRED')
    RETURNING true, wait.execution_id, wait.node, wait.iteration, wait.attempt, wait.status, wait.outcome, wait.output,
              wait.error, wait.answered_by, wait.answered_at;
    RETURN QUERY SELECT true, NULL::uuid, NULL::text, 0, 0, NULL::text, NULL::text, NULL::jsonb, NULL::jsonb,
                        NULL::text, NULL::timestamptz;
END $fn$;

-- Locks the root of an execution's tree, then the execution, whatever their ids. Returns whether the execution is open
-- (null: it does not exist).
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

-- Why an answer is refused: 'node_settled' (the node, the item or its loop has settled), 'no_such_item' (the loop's
-- list is shorter). Null: the answer is not refused.
CREATE OR REPLACE FUNCTION forebay_r1.answer_refusal(p_execution uuid, p_node text, p_iteration int) RETURNS text
LANGUAGE sql STABLE SET enable_seqscan = off AS $fn$
    SELECT CASE WHEN bool_or(node.status NOT IN ('PENDING', 'RUNNING', 'RETRYING')) THEN 'node_settled'
                WHEN bool_or(node.iteration = 0 AND jsonb_typeof(node.input -> 'items') = 'array'
                             AND jsonb_array_length(node.input -> 'items') < p_iteration) THEN 'no_such_item' END
      FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration IN (0, p_iteration)
$fn$;

-- Answers a wait. With p_open, an answer is not kept if the wait is not open yet. p_token is used instead of a
-- workspace to authorize the answer, and can be used once. result:
--   accepted           the answer is stored
--   early              the wait is not open yet: the answer is kept until it is
--   already_answered   another answer was first
--   token_used         the token was used before
--   expired            the wait's time is up
--   execution_ended    the execution has ended
--   node_settled       the node settled without an answer
--   no_such_item       the loop has no such item
--   missing            there is no such execution, wait or token
CREATE OR REPLACE FUNCTION forebay_r1.answer_wait(
    p_execution uuid, p_node text, p_iteration int, p_workspace uuid, p_token bytea, p_output jsonb, p_by text,
    p_open boolean)
RETURNS TABLE (result text, engine text, holder uuid, owner uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_wait forebay.workflow_execution_wait;
    v_token forebay.workflow_execution_token;
    v_lives boolean;
    v_result text;
    v_refusal text;
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
        v_result := CASE WHEN v_token.hash IS NULL THEN 'missing' WHEN v_token.used_at IS NOT NULL THEN 'token_used'
                       WHEN v_token.expires_at <= clock_timestamp() THEN 'missing' END;
    END IF;
    v_result := coalesce(v_result, CASE WHEN v_lives IS NULL THEN 'missing'
                                        WHEN NOT v_lives THEN 'execution_ended' END);
    v_refusal := forebay_r1.answer_refusal(p_execution, p_node, p_iteration);
    IF v_result IS NULL AND NOT p_open AND v_refusal IS NULL THEN
        INSERT INTO forebay.workflow_execution_wait (execution_id, node, iteration, id, workspace_id, kind, attempt,
            status, outcome, output, answered_by, answered_at)
        VALUES (p_execution, p_node, p_iteration, forebay.new_id(), v_workspace, 'WAIT', 0, 'ANSWERED', 'COMPLETED',
            p_output, p_by, clock_timestamp())
        ON CONFLICT DO NOTHING;
        v_result := CASE WHEN FOUND THEN 'early' END;
    END IF;
    IF v_result IS NULL THEN
        SELECT * INTO v_wait FROM forebay.workflow_execution_wait wait
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration FOR UPDATE;
        v_result := CASE WHEN v_wait.id IS NULL AND NOT p_open AND v_refusal IS NOT NULL THEN v_refusal
                       WHEN v_wait.id IS NULL OR v_wait.kind <> 'WAIT' THEN 'missing'
                       WHEN v_wait.status = 'OPEN' AND v_wait.expires_at <= clock_timestamp() THEN 'expired'
                       WHEN v_wait.status = 'OPEN' THEN coalesce(v_refusal, 'accepted')
                       WHEN v_wait.status IN ('ANSWERED', 'RECEIVED') THEN 'already_answered'
                       WHEN v_wait.status = 'EXPIRED' THEN 'expired' ELSE 'execution_ended' END;
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'ANSWERED', outcome = 'COMPLETED', output = p_output, answered_by = p_by,
               answered_at = clock_timestamp(), recheck = false
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'OPEN' AND v_result = 'accepted';
        UPDATE forebay.workflow_execution_wait wait SET status = 'EXPIRED', recheck = false
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'OPEN' AND v_result = 'expired';
    END IF;
    IF v_result IN ('accepted', 'early') THEN
        UPDATE forebay.workflow_execution_token token
           SET used_at = clock_timestamp()
         WHERE token.hash = p_token AND token.used_at IS NULL;
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        VALUES (v_workspace, p_by, 'wait.answer', 'execution', p_execution,
                jsonb_build_object('node', p_node, 'iteration', p_iteration));
    END IF;
    RETURN QUERY SELECT v_result,
                        CASE WHEN v_result IN ('accepted', 'expired') THEN forebay_r1.wake_run(v_wait.holder) END,
                        v_wait.holder,
                        (SELECT holder.owner FROM forebay.workflow_execution holder WHERE holder.id = v_wait.holder);
END $fn$;

-- Closes the open waits of ended executions, in the transaction that ends them.
CREATE OR REPLACE FUNCTION forebay_r1.close_waits(p_ids uuid[]) RETURNS void
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    UPDATE forebay.workflow_execution_wait wait SET status = 'CLOSED', lease_until = NULL, recheck = false
     WHERE wait.execution_id = ANY (p_ids) AND wait.status IN ('OPEN', 'CLAIMED')
$fn$;

-- Expires waits whose time is up, and takes tasks back from silent workers. After p_most silent workers in a row, the
-- attempt fails with p_error. Returns a row for each wait: 'expired', 'lost' (offered again) or 'failed', with the run
-- to wake. If an execution's row is locked, the next call handles its waits.
CREATE OR REPLACE FUNCTION forebay_r1.expire_waits(p_limit int, p_most int, p_error jsonb)
RETURNS TABLE (kind text, engine text, holder uuid, owner uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_holders uuid[];
BEGIN
    RETURN QUERY
    UPDATE forebay.workflow_execution_wait wait
       SET status = 'OPEN', lost = wait.lost + 1, claim_id = NULL, worker = NULL, claim_lease_s = NULL,
           lease_until = NULL
     WHERE wait.id = ANY (ARRAY(
           SELECT wait.id FROM forebay.workflow_execution_wait wait
            WHERE wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp() AND wait.lost < p_most - 1
            ORDER BY wait.lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED))
       AND wait.status = 'CLAIMED'
    RETURNING 'lost', NULL::text, NULL::uuid, NULL::uuid;

    v_holders := ARRAY(
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.id = ANY (ARRAY(
               SELECT wait.holder FROM forebay.workflow_execution_wait wait
                WHERE wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp() AND wait.lost >= p_most - 1
                ORDER BY wait.lease_until LIMIT p_limit) || ARRAY(
               SELECT wait.holder FROM forebay.workflow_execution_wait wait
                WHERE wait.status IN ('OPEN', 'CLAIMED') AND wait.expires_at <= clock_timestamp()
                ORDER BY wait.expires_at LIMIT p_limit))
         ORDER BY execution.id FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    WITH expired AS (
        UPDATE forebay.workflow_execution_wait wait SET status = 'EXPIRED', lease_until = NULL, recheck = false
         WHERE wait.holder = ANY (v_holders) AND wait.status IN ('OPEN', 'CLAIMED')
           AND wait.expires_at <= clock_timestamp()
        RETURNING 'expired' AS kind, wait.holder)
    SELECT expired.kind, forebay_r1.wake_run(expired.holder), expired.holder, holder.owner
      FROM expired
      JOIN forebay.workflow_execution holder ON holder.id = expired.holder;
    RETURN QUERY
    WITH failed AS (
        UPDATE forebay.workflow_execution_wait wait
           SET status = 'ANSWERED', outcome = 'FAILED', error = p_error, answered_by = 'forebay',
               answered_at = clock_timestamp(), lost = wait.lost + 1, claim_id = NULL, worker = NULL, lease_until = NULL
         WHERE wait.holder = ANY (v_holders) AND wait.status = 'CLAIMED' AND wait.lease_until <= clock_timestamp()
           AND wait.lost >= p_most - 1
        RETURNING 'failed' AS kind, wait.holder)
    SELECT failed.kind, forebay_r1.wake_run(failed.holder), failed.holder, holder.owner
      FROM failed
      JOIN forebay.workflow_execution holder ON holder.id = failed.holder;
END $fn$;
