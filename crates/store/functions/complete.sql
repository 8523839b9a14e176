-- Ends executions: the one way an execution becomes terminal, for every caller but `record`,
-- which shows its epoch instead of a claim. What follows an end is one function for both.
--
-- p_from says which statuses the caller means to end (null: any that is not terminal), p_claims
-- the claim a dispatcher must still hold (null: the run itself, or a person, decides).
-- First the execution, guarded; then, in the same transaction, what follows. Zero rows changed means
-- it had already ended: its outcome stands, but a terminal execution never keeps a ticket. The ticket of one that is
-- missing becomes a dead letter, and `applied` is null.
--
-- Lock order: execution rows in id order, then queue rows.
CREATE OR REPLACE FUNCTION forebay_r1.complete(
    p_ids uuid[], p_outcomes text[], p_outputs jsonb[], p_errors jsonb[], p_claims uuid[], p_from text, p_actor text)
RETURNS TABLE (execution uuid, applied boolean, ticket boolean, workspace uuid, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    ended uuid[];
    over record;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution e WHERE e.id = ANY (p_ids) ORDER BY e.id FOR UPDATE;
    WITH t AS (
        SELECT * FROM unnest(p_ids, p_outcomes, p_outputs, p_errors, p_claims) AS t(id, outcome, output, error, claim)),
    e AS (
        UPDATE forebay.workflow_execution e
           SET status = t.outcome, output = t.output, error = t.error, completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - e.started_at) * 1000)::bigint,
               owner = NULL, owner_epoch = owner_epoch + 1, wake_at = NULL
          FROM t
         WHERE e.id = t.id AND e.status IN ('PENDING', 'RUNNING') AND e.status = coalesce(p_from, e.status)
           AND (t.claim IS NULL OR EXISTS (
                SELECT 1 FROM forebay.execution_queue q WHERE q.id = t.id AND q.status = 'CLAIMED' AND q.claim_id = t.claim))
        RETURNING e.id, e.workspace_id, e.status),
    l AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(e.id), array_agg(e.workspace_id), e.status FROM e GROUP BY e.status)
    SELECT coalesce(array_agg(id), '{}') INTO ended FROM e;

    SELECT array_agg(e.id) AS ids, array_agg(e.status) AS outcomes, array_agg(e.error) AS errors,
           array_agg(e.workspace_id) AS workspaces, array_agg(e.id) FILTER (WHERE e.trigger ->> 'type' = 'event') AS of_events,
           array_agg(e.id) FILTER (WHERE e.parent IS NOT NULL OR e.descendants > 0) AS of_trees
      INTO over
      FROM (SELECT DISTINCT t.id FROM unnest(p_ids) AS t(id)) t
     CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution e WHERE e.id = t.id LIMIT 1) e
     WHERE e.status NOT IN ('PENDING', 'RUNNING');

    IF ended <> '{}' AND EXISTS (SELECT 1 FROM forebay.webhook w WHERE w.workspace_id = ANY (over.workspaces) AND w.disabled_at IS NULL) THEN
        PERFORM forebay_r1.add_deliveries(ended);
    END IF;

    RETURN QUERY
    SELECT t.id, t.id = ANY (ended), l.ticket, t.workspace, l.freed
      FROM unnest(over.ids, over.workspaces) AS t(id, workspace)
      JOIN forebay_r1.after_end(over.ids, over.outcomes, over.errors, over.of_events, over.of_trees, true, p_actor) l ON l.execution = t.id
    UNION ALL
    SELECT m.id, NULL, true, m.workspace_id, m.freed FROM forebay_r1.fail_items_of_missing(p_ids, p_claims, p_actor) m;
END $fn$;

-- What follows the end of executions, each named once, in the transaction that ended them: open nodes settled (those that may be
-- performed at most once and are in flight UNKNOWN, and with them the loop or the node whose child they are of), the ticket gone or FAILED whatever its status, the audit row, room for what waited behind it, and the jobs of those that an event
-- started (p_of_events, null for none). Of those that may have descendants (p_of_trees, null for none) what is open ends first.
CREATE OR REPLACE FUNCTION forebay_r1.after_end(
    p_ids uuid[], p_outcomes text[], p_errors jsonb[], p_of_events uuid[], p_of_trees uuid[], p_open boolean, p_actor text)
RETURNS TABLE (execution uuid, ticket boolean, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    z record;
BEGIN
    IF p_of_trees IS NOT NULL THEN
        PERFORM forebay_r1.end_descendants(p_of_trees, p_actor);
    END IF;
    -- p_open: nodes may be open also of what COMPLETED. Of a run that says so itself none is.
    IF p_open OR 'COMPLETED' <> ANY (p_outcomes) THEN
        PERFORM forebay_r1.close_waits(p_ids);
        WITH o AS (
            SELECT n.execution_id, n.node, n.iteration,
                   e.last_seq + row_number() OVER (PARTITION BY n.execution_id ORDER BY n.node, n.iteration) AS seq,
                   -- What is below ended before: of a child, in its rows.
                   n.status = 'RUNNING' AND (n.once OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution c
                        WHERE c.parent = n.execution_id AND c.parent_node = n.node AND c.parent_iteration = n.iteration
                          AND c.parent_attempt = n.attempt AND forebay_r1.is_unknown(c.id))) AS lost
              FROM forebay.workflow_execution_node n JOIN forebay.workflow_execution e ON e.id = n.execution_id
             WHERE n.execution_id = ANY (p_ids) AND n.status IN ('PENDING', 'RUNNING', 'RETRYING')),
        l AS (
            SELECT o.execution_id, o.node, o.iteration, o.seq,
                   o.lost OR (o.iteration = 0 AND (
                       bool_or(o.lost) OVER (PARTITION BY o.execution_id, o.node) OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution_node i
                        WHERE i.execution_id = o.execution_id AND i.node = o.node AND i.iteration > 0 AND i.status = 'UNKNOWN'))) AS lost
              FROM o),
        n AS (
            UPDATE forebay.workflow_execution_node n
               SET status = CASE WHEN l.lost THEN 'UNKNOWN' ELSE 'CANCELED' END,
                   error = CASE WHEN l.lost THEN jsonb_build_object('type', 'RESULT_UNKNOWN', 'node', n.node, 'message',
                       'its execution was ended while something was being performed that may be performed at most once: '
                       'find out whether it took effect, then rerun with resolve done or repeat') ELSE n.error END,
                   completed_at = clock_timestamp(), next_at = NULL, seq = l.seq,
                   duration_ms = (extract(epoch FROM clock_timestamp() - n.started_at) * 1000)::bigint
              FROM l
             WHERE n.execution_id = l.execution_id AND n.node = l.node AND n.iteration = l.iteration
               AND n.status IN ('PENDING', 'RUNNING', 'RETRYING')
            RETURNING n.execution_id, n.seq)
        UPDATE forebay.workflow_execution e SET last_seq = s.seq
          FROM (SELECT n.execution_id, max(n.seq) AS seq FROM n GROUP BY n.execution_id) s
         WHERE e.id = s.execution_id;
    END IF;

    WITH d AS (
        DELETE FROM forebay.execution_queue q
         WHERE q.id = ANY (ARRAY(SELECT t.id FROM unnest(p_ids, p_outcomes) AS t(id, outcome)
                                  WHERE t.outcome IN ('COMPLETED', 'CANCELED')))
           AND q.status <> 'FAILED'
        RETURNING q.id, q.workspace_id, q.workflow_definition_id, q.concurrency_key, q.gated, q.claim_id IS NOT NULL AS freed),
    f AS (
        UPDATE forebay.execution_queue q
           SET status = 'FAILED', stage = 9,
               last_error = (SELECT coalesce(t.error ->> 'message', t.outcome)
                               FROM unnest(p_ids, p_outcomes, p_errors) AS t(id, outcome, error) WHERE t.id = q.id LIMIT 1)
         WHERE q.id = ANY (ARRAY(SELECT t.id FROM unnest(p_ids, p_outcomes) AS t(id, outcome)
                                  WHERE t.outcome IN ('FAILED', 'TIMED_OUT')))
           AND q.status <> 'FAILED'
        RETURNING q.id, q.workspace_id, q.workflow_definition_id, q.concurrency_key, q.gated, q.claim_id IS NOT NULL AS freed),
    a AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT f.workspace_id, p_actor, 'queue_item.fail', 'queue_item', f.id, t.error
          FROM f JOIN unnest(p_ids, p_errors) AS t(id, error) ON t.id = f.id),
    y AS (SELECT id, workspace_id, workflow_definition_id, concurrency_key, gated, freed FROM d
          UNION ALL SELECT id, workspace_id, workflow_definition_id, concurrency_key, gated, freed FROM f)
    SELECT coalesce(array_agg(y.id), '{}') AS ids, array_agg(y.freed) AS freed,
           array_agg(y.workspace_id) FILTER (WHERE y.gated) AS ws,
           array_agg(y.workflow_definition_id) FILTER (WHERE y.gated) AS def,
           array_agg(y.concurrency_key) FILTER (WHERE y.gated) AS key
      INTO z FROM y;

    IF z.ws IS NOT NULL THEN
        PERFORM forebay.unblock(z.ws || z.ws, z.def || z.def, z.key || array_fill(NULL::text, ARRAY[cardinality(z.ws)]));
    END IF;
    IF p_of_events IS NOT NULL THEN
        PERFORM forebay_r1.end_jobs_of(p_of_events);
    END IF;

    RETURN QUERY
    SELECT t.id, y.id IS NOT NULL, coalesce(y.freed, false)
      FROM unnest(p_ids) AS t(id) LEFT JOIN unnest(z.ids, z.freed) AS y(id, freed) ON y.id = t.id;
END $fn$;

-- Ends what is open below executions that ended: nobody runs it any more. An open child has an open parent, so open ones are
-- followed down. Their rows are locked after their root's, as everywhere.
CREATE OR REPLACE FUNCTION forebay_r1.end_descendants(p_ids uuid[], p_actor text) RETURNS void
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    over record;
    v_depth smallint;
BEGIN
    WITH RECURSIVE d (id) AS (
        SELECT c.id FROM forebay.workflow_execution c WHERE c.parent = ANY (p_ids) AND c.completed_at IS NULL
        UNION ALL
        -- OFFSET 0: a probe for each, never a join that reads every open execution.
        SELECT c.id FROM d CROSS JOIN LATERAL (
            SELECT c.id FROM forebay.workflow_execution c WHERE c.parent = d.id AND c.completed_at IS NULL OFFSET 0) c),
    e AS (
        UPDATE forebay.workflow_execution e
           SET status = 'CANCELED', completed_at = clock_timestamp(), owner = NULL, owner_epoch = owner_epoch + 1, wake_at = NULL,
               duration_ms = (extract(epoch FROM clock_timestamp() - e.started_at) * 1000)::bigint
         WHERE e.id = ANY (ARRAY(SELECT d.id FROM d)) AND e.status IN ('PENDING', 'RUNNING')
        RETURNING e.id, e.workspace_id, e.status, e.depth),
    l AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(e.id), array_agg(e.workspace_id), e.status FROM e GROUP BY e.status)
    SELECT array_agg(e.id) AS ids, array_agg(e.depth) AS depths INTO over FROM e;
    -- The deepest first: what is not known of a child is not known of the node that made it.
    FOR v_depth IN SELECT DISTINCT t.depth FROM unnest(over.depths) AS t(depth) ORDER BY t.depth DESC LOOP
        PERFORM 1 FROM forebay_r1.after_end(
            ARRAY(SELECT t.id FROM unnest(over.ids, over.depths) AS t(id, depth) WHERE t.depth = v_depth),
            ARRAY(SELECT 'CANCELED' FROM unnest(over.depths) AS t(depth) WHERE t.depth = v_depth),
            ARRAY(SELECT NULL::jsonb FROM unnest(over.depths) AS t(depth) WHERE t.depth = v_depth), NULL, NULL, true, p_actor);
    END LOOP;
END $fn$;

-- Of one of its nodes it is not known whether it took effect.
CREATE OR REPLACE FUNCTION forebay_r1.is_unknown(p_id uuid) RETURNS boolean
LANGUAGE sql STABLE
AS $fn$
    SELECT EXISTS (SELECT 1 FROM forebay.workflow_execution_node n WHERE n.execution_id = p_id AND n.status = 'UNKNOWN')
$fn$;

-- Makes dead letters of tickets whose execution is missing, with their audit rows, and frees their slots. What is open below them ends,
-- their waits and tasks are closed, and their jobs fail and are not tried again: nobody knows how far they came. p_claims: the claim
-- that must still hold the item; null for none.
--
-- Lock order: the ticket stands for the root's row, so it is locked before what is below.
CREATE OR REPLACE FUNCTION forebay_r1.fail_items_of_missing(p_ids uuid[], p_claims uuid[], p_actor text)
RETURNS TABLE (id uuid, workspace_id uuid, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_reason constant text := 'its execution row is missing: somebody deleted it';
    failed record;
BEGIN
    WITH missing AS (
        UPDATE forebay.execution_queue q SET status = 'FAILED', stage = 9, last_error = v_reason
          FROM unnest(p_ids, p_claims) AS t(id, claim)
         WHERE q.id = t.id AND q.status <> 'FAILED' AND (t.claim IS NULL OR (q.status = 'CLAIMED' AND q.claim_id = t.claim))
           AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution e WHERE e.id = t.id)
        RETURNING q.id, q.workspace_id, q.workflow_definition_id, q.concurrency_key, q.gated, q.claim_id IS NOT NULL AS freed),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT m.workspace_id, p_actor, 'queue_item.fail', 'queue_item', m.id,
               jsonb_build_object('type', 'EXECUTION_GONE', 'message', v_reason)
          FROM missing m)
    SELECT coalesce(array_agg(m.id), '{}') AS ids, array_agg(m.workspace_id) AS of, array_agg(m.freed) AS freed,
           array_agg(m.workspace_id) FILTER (WHERE m.gated) AS workspaces,
           array_agg(m.workflow_definition_id) FILTER (WHERE m.gated) AS definitions,
           array_agg(m.concurrency_key) FILTER (WHERE m.gated) AS keys
      INTO failed FROM missing m;
    IF failed.ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM forebay_r1.end_descendants(failed.ids, p_actor);
    PERFORM forebay_r1.close_waits(failed.ids);
    IF failed.workspaces IS NOT NULL THEN
        PERFORM forebay.unblock(failed.workspaces || failed.workspaces, failed.definitions || failed.definitions,
                          failed.keys || array_fill(NULL::text, ARRAY[cardinality(failed.workspaces)]));
    END IF;
    PERFORM forebay_r1.fail_jobs_of_missing(failed.ids);
    RETURN QUERY SELECT * FROM unnest(failed.ids, failed.of, failed.freed);
END $fn$;
