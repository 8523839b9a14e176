-- Events and the waits that may be for them: judged in pages, by workspaces in turn.

-- Hands out a page of the workspace whose turn it is behind p_after: pairs of an open wait and an event, in order, and
-- a last row without. No row: nobody has anything to judge. A workspace is judged by one at a time, from its first
-- candidate on, so that its waits hear of events in order; another whose first is taken is passed over. What is not
-- said to be judged within p_lease_s is handed out again.
CREATE OR REPLACE FUNCTION forebay_r1.take_candidates(p_after uuid, p_limit int, p_lease_s float8)
RETURNS TABLE (claim uuid, workspace uuid, execution uuid, node text, iteration int, match text, event uuid, candidate bigint, wait uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_claim CONSTANT uuid := gen_random_uuid();
    v_place uuid := forebay_r1.next_to_judge(p_after);
    v_left int := p_limit;
    v_seen int;
    c forebay.workflow_execution_candidate;
    r record;
BEGIN
    IF v_place IS NULL THEN
        RETURN;
    END IF;
    FOR c IN SELECT * FROM forebay.workflow_execution_candidate c
              WHERE c.workspace_id = v_place AND (c.taken_until IS NULL OR c.taken_until <= clock_timestamp())
              ORDER BY c.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        v_seen := 0;
        FOR r IN SELECT * FROM forebay_r1.candidate_page(c, v_left) LOOP
            v_seen := v_seen + 1;
            c.next_wait := r.wait;
            c.next_at := r.at;
            c.next_sequence := r.sequence;
            IF r.fits THEN
                RETURN QUERY SELECT v_claim, v_place, r.execution, r.node, r.iteration, r.match, r.event, c.id, r.wait;
            END IF;
        END LOOP;
        IF v_seen = 0 THEN
            DELETE FROM forebay.workflow_execution_candidate d WHERE d.id = c.id;
        ELSE
            UPDATE forebay.workflow_execution_candidate u
               SET taken_by = v_claim, taken_until = clock_timestamp() + make_interval(secs => p_lease_s),
                   next_wait = c.next_wait, next_at = c.next_at, next_sequence = c.next_sequence, more = v_seen >= v_left
             WHERE u.id = c.id;
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
        v_place := (SELECT c.workspace_id FROM forebay.workflow_execution_candidate c
                     WHERE c.workspace_id > v_place ORDER BY c.workspace_id LIMIT 1);
        IF v_place IS NULL THEN
            EXIT WHEN v_round = 2;
            v_place := v_nil;
            v_round := 2;
            CONTINUE;
        END IF;
        v_first := (SELECT c.id FROM forebay.workflow_execution_candidate c WHERE c.workspace_id = v_place ORDER BY c.id LIMIT 1);
        PERFORM 1 FROM forebay.workflow_execution_candidate c
          WHERE c.id = v_first AND (c.taken_until IS NULL OR c.taken_until <= clock_timestamp()) FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN v_place;
        END IF;
    END LOOP;
    RETURN NULL;
END $fn$;

-- The next p_limit pairs of a candidate: of an event the open waits for its type, of a wait that is open the events of
-- its type. fits: the event is not from before the wait's execution.
CREATE OR REPLACE FUNCTION forebay_r1.candidate_page(c forebay.workflow_execution_candidate, p_limit int)
RETURNS TABLE (wait uuid, at timestamptz, sequence bigint, execution uuid, node text, iteration int, match text, event uuid, fits boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
BEGIN
    IF c.event_id IS NOT NULL THEN
        RETURN QUERY
        SELECT a.id, NULL::timestamptz, NULL::bigint, a.execution_id, a.node, a.iteration, a.match, d.id, a.events_from <= d.created_at
          FROM public.domain_events d
         CROSS JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_ask a
                WHERE a.workspace_id = c.workspace_id AND a.event_type = d.event_type AND a.status = 'OPEN'
                  AND a.id > coalesce(c.after_wait, '00000000-0000-0000-0000-000000000000')
                ORDER BY a.id LIMIT p_limit) a
         WHERE d.id = c.event_id AND d.workspace_id = c.workspace_id
         ORDER BY a.id;
    ELSE
        RETURN QUERY
        SELECT NULL::uuid, d.created_at, d.sequence, a.execution_id, a.node, a.iteration, a.match, d.id, true
          FROM forebay.workflow_execution_ask a
         CROSS JOIN LATERAL (
               SELECT * FROM public.domain_events d
                WHERE d.workspace_id = c.workspace_id AND d.event_type = a.event_type AND d.stream_type <> 'workflow_queue'
                  AND (d.created_at, d.sequence) > (c.after_at, c.after_sequence)
                ORDER BY d.created_at, d.sequence LIMIT p_limit) d
         WHERE a.execution_id = c.execution_id AND a.node = c.node AND a.iteration = c.iteration AND a.status = 'OPEN'
         ORDER BY d.created_at, d.sequence;
    END IF;
END $fn$;

-- Marks a page as judged. A candidate with more pairs continues behind the page; the others are done.
-- With p_candidate, only the pairs up to p_wait and p_event of that candidate were judged, and the rest of the page is
-- released for the next judge; without it, the whole page was. If another judge has claimed the page since, nothing
-- changes.
CREATE OR REPLACE FUNCTION forebay_r1.finish_candidates(p_claim uuid, p_candidate bigint, p_wait uuid, p_event uuid) RETURNS void
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    UPDATE forebay.workflow_execution_candidate c SET taken_by = NULL, taken_until = NULL, more = false
     WHERE c.taken_by = p_claim AND c.id > p_candidate;
    -- Of an event the waits are read in order, of a wait the events.
    UPDATE forebay.workflow_execution_candidate c
       SET next_wait = p_wait, more = true,
           next_at = (SELECT d.created_at FROM public.domain_events d WHERE d.id = p_event AND d.workspace_id = c.workspace_id AND c.event_id IS NULL),
           next_sequence = (SELECT d.sequence FROM public.domain_events d WHERE d.id = p_event AND d.workspace_id = c.workspace_id AND c.event_id IS NULL)
     WHERE c.taken_by = p_claim AND c.id = p_candidate;
    DELETE FROM forebay.workflow_execution_candidate c WHERE c.taken_by = p_claim AND NOT c.more;
    UPDATE forebay.workflow_execution_candidate c
       SET after_wait = c.next_wait, after_at = c.next_at, after_sequence = c.next_sequence, taken_by = NULL, taken_until = NULL, more = false
     WHERE c.taken_by = p_claim AND c.more;
$fn$;
