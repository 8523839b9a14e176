-- Events and the waits that may be for them: judged in pages, by workspaces in turn.

-- Hands out a page of the workspace whose turn it is behind p_after: pairs of an open wait and an event, in order, and
-- a last row without. No row: nobody has anything to judge. A workspace is judged by one at a time, from its first
-- candidate on, so that its waits hear of events in order; another whose first is taken is passed over. What is not
-- said to be judged within p_lease_s is handed out again.
CREATE OR REPLACE FUNCTION forebay_r1.take_candidates(p_after uuid, p_limit int, p_lease_s float8)
RETURNS TABLE (claim uuid, workspace uuid, execution uuid, node text, iteration int, match text, event uuid,
               candidate bigint, wait uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_claim CONSTANT uuid := gen_random_uuid();
    v_place uuid := forebay_r1.next_to_judge(p_after);
    v_left int := p_limit;
    v_seen int;
    v_candidate forebay.workflow_execution_candidate;
    v_pair record;
BEGIN
    IF v_place IS NULL THEN
        RETURN;
    END IF;
    FOR v_candidate IN
        SELECT * FROM forebay.workflow_execution_candidate candidate
         WHERE candidate.workspace_id = v_place
           AND (candidate.taken_until IS NULL OR candidate.taken_until <= clock_timestamp())
         ORDER BY candidate.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        v_seen := 0;
        FOR v_pair IN SELECT * FROM forebay_r1.candidate_page(v_candidate, v_left) LOOP
            v_seen := v_seen + 1;
            v_candidate.next_wait := v_pair.wait;
            v_candidate.next_at := v_pair.at;
            v_candidate.next_sequence := v_pair.sequence;
            IF v_pair.fits THEN
                RETURN QUERY SELECT v_claim, v_place, v_pair.execution, v_pair.node, v_pair.iteration, v_pair.match,
                                    v_pair.event, v_candidate.id, v_pair.wait;
            END IF;
        END LOOP;
        IF v_seen = 0 THEN
            DELETE FROM forebay.workflow_execution_candidate candidate WHERE candidate.id = v_candidate.id;
        ELSE
            UPDATE forebay.workflow_execution_candidate candidate
               SET taken_by = v_claim, taken_until = clock_timestamp() + make_interval(secs => p_lease_s),
                   next_wait = v_candidate.next_wait, next_at = v_candidate.next_at,
                   next_sequence = v_candidate.next_sequence, more = v_seen >= v_left
             WHERE candidate.id = v_candidate.id;
        END IF;
        v_left := v_left - v_seen;
        EXIT WHEN v_left <= 0;
    END LOOP;
    RETURN QUERY SELECT v_claim, v_place, NULL::uuid, NULL::text, 0, NULL::text, NULL::uuid, NULL::bigint, NULL::uuid;
END $fn$;

-- The workspace whose turn it is behind p_after: the next one whose first candidate nobody has, locked from here on.
CREATE OR REPLACE FUNCTION forebay_r1.next_to_judge(p_after uuid) RETURNS uuid
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_place uuid := coalesce(p_after, v_nil);
    v_round int := 1;
    v_first bigint;
BEGIN
    FOR step IN 1..1000 LOOP
        v_place := (SELECT candidate.workspace_id FROM forebay.workflow_execution_candidate candidate
                     WHERE candidate.workspace_id > v_place ORDER BY candidate.workspace_id LIMIT 1);
        IF v_place IS NULL THEN
            EXIT WHEN v_round = 2;
            v_place := v_nil;
            v_round := 2;
            CONTINUE;
        END IF;
        v_first := (SELECT candidate.id
                      FROM forebay.workflow_execution_candidate candidate
                     WHERE candidate.workspace_id = v_place
                     ORDER BY candidate.id
                     LIMIT 1);
        PERFORM 1 FROM forebay.workflow_execution_candidate candidate
          WHERE candidate.id = v_first AND (candidate.taken_until IS NULL OR candidate.taken_until <= clock_timestamp())
          FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN v_place;
        END IF;
    END LOOP;
    RETURN NULL;
END $fn$;

-- The next p_limit pairs of a candidate: of an event the open waits for its type, of a wait that is open the events of
-- its type. fits: the event is not from before the wait's execution.
CREATE OR REPLACE FUNCTION forebay_r1.candidate_page(c forebay.workflow_execution_candidate, p_limit int)
RETURNS TABLE (wait uuid, at timestamptz, sequence bigint, execution uuid, node text, iteration int, match text,
               event uuid, fits boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_candidate ALIAS FOR c;
BEGIN
    IF v_candidate.event_id IS NOT NULL THEN
        RETURN QUERY
        SELECT wait.id, NULL::timestamptz, NULL::bigint, wait.execution_id, wait.node, wait.iteration, wait.match,
               event.id, wait.events_from <= event.created_at
          FROM public.domain_events event
         CROSS JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_ask wait
                WHERE wait.workspace_id = v_candidate.workspace_id AND wait.event_type = event.event_type
                  AND wait.status = 'OPEN'
                  AND wait.id > coalesce(v_candidate.after_wait, '00000000-0000-0000-0000-000000000000')
                ORDER BY wait.id LIMIT p_limit) wait
         WHERE event.id = v_candidate.event_id AND event.workspace_id = v_candidate.workspace_id
         ORDER BY wait.id;
    ELSE
        RETURN QUERY
        SELECT NULL::uuid, event.created_at, event.sequence, wait.execution_id, wait.node, wait.iteration, wait.match,
               event.id, true
          FROM forebay.workflow_execution_ask wait
         CROSS JOIN LATERAL (
               SELECT * FROM public.domain_events event
                WHERE event.workspace_id = v_candidate.workspace_id AND event.event_type = wait.event_type
                  AND event.stream_type <> 'workflow_queue'
                  AND (event.created_at, event.sequence) > (v_candidate.after_at, v_candidate.after_sequence)
                ORDER BY event.created_at, event.sequence LIMIT p_limit) event
         WHERE wait.execution_id = v_candidate.execution_id AND wait.node = v_candidate.node
           AND wait.iteration = v_candidate.iteration AND wait.status = 'OPEN'
         ORDER BY event.created_at, event.sequence;
    END IF;
END $fn$;

-- Marks a page as judged. A candidate with more pairs continues behind the page; the others are done.
-- With p_candidate, only the pairs up to p_wait and p_event of that candidate were judged, and the rest of the page is
-- released for the next judge; without it, the whole page was. If another judge has claimed the page since, nothing
-- changes.
CREATE OR REPLACE FUNCTION forebay_r1.finish_candidates(p_claim uuid, p_candidate bigint, p_wait uuid, p_event uuid)
RETURNS void
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    UPDATE forebay.workflow_execution_candidate candidate SET taken_by = NULL, taken_until = NULL, more = false
     WHERE candidate.taken_by = p_claim AND candidate.id > p_candidate;
    -- Of an event the waits are read in order, of a wait the events.
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
     WHERE candidate.taken_by = p_claim AND candidate.id = p_candidate;
    DELETE FROM forebay.workflow_execution_candidate candidate
     WHERE candidate.taken_by = p_claim AND NOT candidate.more;
    UPDATE forebay.workflow_execution_candidate candidate
       SET after_wait = candidate.next_wait, after_at = candidate.next_at, after_sequence = candidate.next_sequence,
           taken_by = NULL, taken_until = NULL, more = false
     WHERE candidate.taken_by = p_claim AND candidate.more;
$fn$;
