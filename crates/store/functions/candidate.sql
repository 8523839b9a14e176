-- Candidates: events, each with the waits that it may answer, or waits, each with the events that may answer it. They
-- are evaluated in pages, and workspaces take turns.

-- Hands out a page of the next workspace after p_after: pairs of an open wait and an event, in order. The last row has
-- only the claim, without a pair. Returns no row if there is nothing to evaluate.
--
-- At most one process at a time evaluates a workspace, from its first candidate on, so that its waits see events in
-- order. A workspace whose first candidate is claimed is skipped. If a page is not marked as evaluated within
-- p_lease_s, it is handed out again.
CREATE OR REPLACE FUNCTION forebay_r1.claim_candidates(p_after uuid, p_limit int, p_lease_s float8)
RETURNS TABLE (claim uuid, workspace uuid, execution uuid, node text, iteration int, match text, event uuid,
               candidate bigint, wait uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_claim CONSTANT uuid := gen_random_uuid();
    v_workspace uuid := forebay_r1.next_workspace_to_evaluate(p_after);
    v_left int := p_limit;
    v_seen int;
    v_candidate forebay.workflow_execution_candidate;
    v_pair record;
BEGIN
    IF v_workspace IS NULL THEN
        RETURN;
    END IF;
    FOR v_candidate IN
        SELECT * FROM forebay.workflow_execution_candidate candidate
         WHERE candidate.workspace_id = v_workspace
           AND (candidate.claimed_until IS NULL OR candidate.claimed_until <= clock_timestamp())
         ORDER BY candidate.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        v_seen := 0;
        FOR v_pair IN SELECT * FROM forebay_r1.candidate_page(v_candidate, v_left) LOOP
            v_seen := v_seen + 1;
            v_candidate.next_wait := v_pair.wait;
            v_candidate.next_at := v_pair.at;
            v_candidate.next_sequence := v_pair.sequence;
            IF v_pair.fits THEN
                RETURN QUERY SELECT v_claim, v_workspace, v_pair.execution, v_pair.node, v_pair.iteration, v_pair.match,
                                    v_pair.event, v_candidate.id, v_pair.wait;
            END IF;
        END LOOP;
        IF v_seen = 0 THEN
            DELETE FROM forebay.workflow_execution_candidate candidate WHERE candidate.id = v_candidate.id;
        ELSE
            UPDATE forebay.workflow_execution_candidate candidate
               SET claimed_by = v_claim, claimed_until = clock_timestamp() + make_interval(secs => p_lease_s),
                   next_wait = v_candidate.next_wait, next_at = v_candidate.next_at,
                   next_sequence = v_candidate.next_sequence, more = v_seen >= v_left
             WHERE candidate.id = v_candidate.id;
        END IF;
        v_left := v_left - v_seen;
        EXIT WHEN v_left <= 0;
    END LOOP;
    RETURN QUERY SELECT v_claim, v_workspace, NULL::uuid, NULL::text, 0, NULL::text, NULL::uuid, NULL::bigint,
                        NULL::uuid;
END $fn$;

-- The next workspace after p_after whose first candidate is not claimed. Locks that candidate for this transaction.
CREATE OR REPLACE FUNCTION forebay_r1.next_workspace_to_evaluate(p_after uuid) RETURNS uuid
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_workspace uuid := coalesce(p_after, v_nil);
    v_round int := 1;
    v_first bigint;
BEGIN
    FOR step IN 1..1000 LOOP
        v_workspace := (SELECT candidate.workspace_id FROM forebay.workflow_execution_candidate candidate
                     WHERE candidate.workspace_id > v_workspace ORDER BY candidate.workspace_id LIMIT 1);
        IF v_workspace IS NULL THEN
            EXIT WHEN v_round = 2;
            v_workspace := v_nil;
            v_round := 2;
            CONTINUE;
        END IF;
        v_first := (SELECT candidate.id
                      FROM forebay.workflow_execution_candidate candidate
                     WHERE candidate.workspace_id = v_workspace
                     ORDER BY candidate.id
                     LIMIT 1);
        PERFORM 1 FROM forebay.workflow_execution_candidate candidate
          WHERE candidate.id = v_first
            AND (candidate.claimed_until IS NULL OR candidate.claimed_until <= clock_timestamp())
          FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN v_workspace;
        END IF;
    END LOOP;
    RETURN NULL;
END $fn$;

-- The next p_limit pairs of a candidate. For an event, the pairs are the open waits for its type; for an open wait, the
-- events of its type. fits: the event is not older than the wait's execution.
CREATE OR REPLACE FUNCTION forebay_r1.candidate_page(p_candidate forebay.workflow_execution_candidate, p_limit int)
RETURNS TABLE (wait uuid, at timestamptz, sequence bigint, execution uuid, node text, iteration int, match text,
               event uuid, fits boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
BEGIN
    IF p_candidate.event_id IS NOT NULL THEN
        RETURN QUERY
        SELECT wait.id, NULL::timestamptz, NULL::bigint, wait.execution_id, wait.node, wait.iteration, wait.match,
               event.id, wait.events_from <= event.created_at
          FROM public.domain_events event
         CROSS JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_wait wait
                WHERE wait.workspace_id = p_candidate.workspace_id AND wait.event_type = event.event_type
                  AND wait.status = 'OPEN'
                  AND wait.id > coalesce(p_candidate.after_wait, '00000000-0000-0000-0000-000000000000')
                ORDER BY wait.id LIMIT p_limit) wait
         WHERE event.id = p_candidate.event_id AND event.workspace_id = p_candidate.workspace_id
         ORDER BY wait.id;
    ELSE
        RETURN QUERY
        SELECT NULL::uuid, event.created_at, event.sequence, wait.execution_id, wait.node, wait.iteration, wait.match,
               event.id, true
          FROM forebay.workflow_execution_wait wait
         CROSS JOIN LATERAL (
               SELECT * FROM public.domain_events event
                WHERE event.workspace_id = p_candidate.workspace_id AND event.event_type = wait.event_type
                  AND event.stream_type <> 'workflow_queue'
                  AND (event.created_at, event.sequence) > (p_candidate.after_at, p_candidate.after_sequence)
                ORDER BY event.created_at, event.sequence LIMIT p_limit) event
         WHERE wait.execution_id = p_candidate.execution_id AND wait.node = p_candidate.node
           AND wait.iteration = p_candidate.iteration AND wait.status = 'OPEN'
         ORDER BY event.created_at, event.sequence;
    END IF;
END $fn$;

-- Marks a page as evaluated. A candidate with more pairs continues after the page; a candidate without more pairs is
-- deleted. If p_candidate is given, only the pairs up to p_wait and p_event of that candidate were evaluated, and the
-- remaining pairs of the page are released. If another process has claimed the page since, nothing changes.
CREATE OR REPLACE FUNCTION forebay_r1.finish_candidates(p_claim uuid, p_candidate bigint, p_wait uuid, p_event uuid)
RETURNS void
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    UPDATE forebay.workflow_execution_candidate candidate SET claimed_by = NULL, claimed_until = NULL, more = false
     WHERE candidate.claimed_by = p_claim AND candidate.id > p_candidate;
    -- The waits of an event are read in order, and so are the events of a wait.
    UPDATE forebay.workflow_execution_candidate candidate
       SET next_wait = p_wait, more = true,
           next_at = (SELECT event.created_at
                        FROM public.domain_events event
                       WHERE event.id = p_event AND event.workspace_id = candidate.workspace_id
                         AND candidate.event_id IS NULL),
           next_sequence = (SELECT event.sequence
                              FROM public.domain_events event
                             WHERE event.id = p_event AND event.workspace_id = candidate.workspace_id
                               AND candidate.event_id IS NULL)
     WHERE candidate.claimed_by = p_claim AND candidate.id = p_candidate;
    DELETE FROM forebay.workflow_execution_candidate candidate
     WHERE candidate.claimed_by = p_claim AND NOT candidate.more;
    UPDATE forebay.workflow_execution_candidate candidate
       SET after_wait = candidate.next_wait, after_at = candidate.next_at, after_sequence = candidate.next_sequence,
           claimed_by = NULL, claimed_until = NULL, more = false
     WHERE candidate.claimed_by = p_claim AND candidate.more;
$fn$;
