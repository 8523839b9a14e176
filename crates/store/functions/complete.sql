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
    v_ended uuid[];
    v_over record;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution asked WHERE asked.id = ANY (p_ids) ORDER BY asked.id FOR UPDATE;
    WITH asked AS (
        SELECT *
          FROM unnest(p_ids, p_outcomes, p_outputs, p_errors, p_claims) AS asked(id, outcome, output, error, claim)),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = asked.outcome, output = asked.output, error = asked.error, completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint,
               owner = NULL, owner_epoch = owner_epoch + 1, wake_at = NULL
          FROM asked
         WHERE execution.id = asked.id AND execution.status IN ('PENDING', 'RUNNING')
           AND execution.status = coalesce(p_from, execution.status)
           AND (asked.claim IS NULL OR EXISTS (
                SELECT 1 FROM forebay.execution_queue queued
                 WHERE queued.id = asked.id AND queued.status = 'CLAIMED' AND queued.claim_id = asked.claim))
        RETURNING execution.id, execution.workspace_id, execution.status),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status
          FROM ended
         GROUP BY ended.status)
    SELECT coalesce(array_agg(ended.id), '{}') INTO v_ended FROM ended;

    SELECT array_agg(execution.id) AS ids, array_agg(execution.status) AS outcomes,
           array_agg(execution.error) AS errors, array_agg(execution.workspace_id) AS workspaces,
           array_agg(execution.id) FILTER (WHERE execution.trigger ->> 'type' = 'event') AS of_events,
           array_agg(execution.id) FILTER (WHERE execution.parent IS NOT NULL OR execution.descendants > 0) AS of_trees
      INTO v_over
      FROM (SELECT DISTINCT each.id FROM unnest(p_ids) AS each(id)) asked
     CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution stored WHERE stored.id = asked.id LIMIT 1) execution
     WHERE execution.status NOT IN ('PENDING', 'RUNNING');

    IF v_ended <> '{}' AND EXISTS (
        SELECT 1
          FROM forebay.webhook live
         WHERE live.workspace_id = ANY (v_over.workspaces) AND live.disabled_at IS NULL) THEN
        PERFORM forebay_r1.add_deliveries(v_ended);
    END IF;

    RETURN QUERY
    SELECT terminal.id, terminal.id = ANY (v_ended), followed.ticket, terminal.workspace_id, followed.freed
      FROM unnest(v_over.ids, v_over.workspaces) AS terminal(id, workspace_id)
      JOIN forebay_r1.after_end(v_over.ids, v_over.outcomes, v_over.errors, v_over.of_events, v_over.of_trees, true,
                                p_actor) AS followed
        ON followed.execution = terminal.id
    UNION ALL
    SELECT missing.id, NULL, true, missing.workspace_id, missing.freed
      FROM forebay_r1.fail_items_of_missing(p_ids, p_claims, p_actor) AS missing;
END $fn$;

-- What follows the end of executions, each named once, in the transaction that ended them:
--   open nodes are settled: UNKNOWN those in flight that may be performed at most once, and with them the loop or the
--     node whose child they are of; CANCELED the others
--   the queue item goes, or is FAILED, whatever its status; with an audit row
--   what was blocked behind it has room
--   the jobs of those that an event started end (p_of_events, null for none)
-- Of those that may have descendants (p_of_trees, null for none) what is open ends first.
CREATE OR REPLACE FUNCTION forebay_r1.after_end(
    p_ids uuid[], p_outcomes text[], p_errors jsonb[], p_of_events uuid[], p_of_trees uuid[], p_open boolean,
    p_actor text)
RETURNS TABLE (execution uuid, ticket boolean, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_left record;
BEGIN
    IF p_of_trees IS NOT NULL THEN
        PERFORM forebay_r1.end_descendants(p_of_trees, p_actor);
    END IF;
    -- p_open: nodes may be open also of what COMPLETED. Of a run that says so itself none is.
    IF p_open OR 'COMPLETED' <> ANY (p_outcomes) THEN
        PERFORM forebay_r1.close_waits(p_ids);
        WITH open_nodes AS (
            SELECT node.execution_id, node.node, node.iteration,
                   execution.last_seq
                       + row_number() OVER (PARTITION BY node.execution_id ORDER BY node.node, node.iteration) AS seq,
                   -- What is below ended before: of a child, in its rows.
                   node.status = 'RUNNING' AND (node.once OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution child
                        WHERE child.parent = node.execution_id AND child.parent_node = node.node
                          AND child.parent_iteration = node.iteration AND child.parent_attempt = node.attempt
                          AND forebay_r1.is_unknown(child.id))) AS unknown
              FROM forebay.workflow_execution_node node
              JOIN forebay.workflow_execution execution ON execution.id = node.execution_id
             WHERE node.execution_id = ANY (p_ids) AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')),
        judged AS (
            SELECT open.execution_id, open.node, open.iteration, open.seq,
                   open.unknown OR (open.iteration = 0 AND (
                       bool_or(open.unknown) OVER (PARTITION BY open.execution_id, open.node) OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution_node item
                        WHERE item.execution_id = open.execution_id AND item.node = open.node AND item.iteration > 0
                          AND item.status = 'UNKNOWN'))) AS unknown
              FROM open_nodes open),
        settled AS (
            UPDATE forebay.workflow_execution_node node
               SET status = CASE WHEN judged.unknown THEN 'UNKNOWN' ELSE 'CANCELED' END,
                   error = CASE WHEN judged.unknown THEN jsonb_build_object(
                       'type', 'RESULT_UNKNOWN', 'node', node.node, 'message',
                       'its execution was ended while something was being performed that may be performed at most '
                       'once: find out whether it took effect, then rerun with resolve done or repeat')
                       ELSE node.error END,
                   completed_at = clock_timestamp(), next_at = NULL, seq = judged.seq,
                   duration_ms = (extract(epoch FROM clock_timestamp() - node.started_at) * 1000)::bigint
              FROM judged
             WHERE node.execution_id = judged.execution_id AND node.node = judged.node
               AND node.iteration = judged.iteration
               AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')
            RETURNING node.execution_id, node.seq)
        UPDATE forebay.workflow_execution execution SET last_seq = progress.seq
          FROM (SELECT settled.execution_id, max(settled.seq) AS seq
                  FROM settled
                 GROUP BY settled.execution_id) progress
         WHERE execution.id = progress.execution_id;
    END IF;

    WITH deleted AS (
        DELETE FROM forebay.execution_queue queued
         WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                       WHERE ended.outcome IN ('COMPLETED', 'CANCELED')))
           AND queued.status <> 'FAILED'
        RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key, queued.gated,
                  queued.claim_id IS NOT NULL AS freed),
    failed AS (
        UPDATE forebay.execution_queue queued
           SET status = 'FAILED', stage = forebay.stage_failed(),
               last_error = (SELECT coalesce(ended.error ->> 'message', ended.outcome)
                               FROM unnest(p_ids, p_outcomes, p_errors) AS ended(id, outcome, error)
                              WHERE ended.id = queued.id
                              LIMIT 1)
         WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                       WHERE ended.outcome IN ('FAILED', 'TIMED_OUT')))
           AND queued.status <> 'FAILED'
        RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key, queued.gated,
                  queued.claim_id IS NOT NULL AS freed),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT failed.workspace_id, p_actor, 'queue_item.fail', 'queue_item', failed.id, ended.error
          FROM failed JOIN unnest(p_ids, p_errors) AS ended(id, error) ON ended.id = failed.id),
    left_queue AS (
        SELECT id, workspace_id, workflow_definition_id, concurrency_key, gated, freed FROM deleted
        UNION ALL
        SELECT id, workspace_id, workflow_definition_id, concurrency_key, gated, freed FROM failed)
    SELECT coalesce(array_agg(item.id), '{}') AS ids, array_agg(item.freed) AS freed,
           array_agg(item.workspace_id) FILTER (WHERE item.gated) AS workspaces,
           array_agg(item.workflow_definition_id) FILTER (WHERE item.gated) AS definitions,
           array_agg(item.concurrency_key) FILTER (WHERE item.gated) AS keys
      INTO v_left FROM left_queue item;

    -- Each once by its key and once by its definition.
    IF v_left.workspaces IS NOT NULL THEN
        PERFORM forebay.unblock(v_left.workspaces || v_left.workspaces, v_left.definitions || v_left.definitions,
                                v_left.keys || array_fill(NULL::text, ARRAY[cardinality(v_left.workspaces)]));
    END IF;
    IF p_of_events IS NOT NULL THEN
        PERFORM forebay_r1.end_jobs_of(p_of_events);
    END IF;

    RETURN QUERY
    SELECT ended.id, item.id IS NOT NULL, coalesce(item.freed, false)
      FROM unnest(p_ids) AS ended(id)
      LEFT JOIN unnest(v_left.ids, v_left.freed) AS item(id, freed) ON item.id = ended.id;
END $fn$;

-- Ends what is open below executions that ended: nobody runs it any more. An open child has an open parent, so open
-- ones are followed down. Their rows are locked after their root's, as everywhere.
CREATE OR REPLACE FUNCTION forebay_r1.end_descendants(p_ids uuid[], p_actor text) RETURNS void
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_ended record;
    v_depth smallint;
BEGIN
    WITH RECURSIVE descendants (id) AS (
        SELECT child.id
          FROM forebay.workflow_execution child
         WHERE child.parent = ANY (p_ids) AND child.completed_at IS NULL
        UNION ALL
        -- OFFSET 0: a probe for each, never a join that reads every open execution.
        SELECT child.id FROM descendants CROSS JOIN LATERAL (
            SELECT below.id FROM forebay.workflow_execution below
             WHERE below.parent = descendants.id AND below.completed_at IS NULL OFFSET 0) child),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'CANCELED', completed_at = clock_timestamp(), owner = NULL, owner_epoch = owner_epoch + 1,
               wake_at = NULL,
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint
         WHERE execution.id = ANY (ARRAY(SELECT descendants.id FROM descendants))
           AND execution.status IN ('PENDING', 'RUNNING')
        RETURNING execution.id, execution.workspace_id, execution.status, execution.depth),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status
          FROM ended
         GROUP BY ended.status)
    SELECT array_agg(ended.id) AS ids, array_agg(ended.depth) AS depths INTO v_ended FROM ended;
    -- The deepest first: what is not known of a child is not known of the node that made it.
    FOR v_depth IN
        SELECT DISTINCT level.depth FROM unnest(v_ended.depths) AS level(depth) ORDER BY level.depth DESC
    LOOP
        PERFORM 1 FROM forebay_r1.after_end(
            ARRAY(SELECT ended.id
                    FROM unnest(v_ended.ids, v_ended.depths) AS ended(id, depth)
                   WHERE ended.depth = v_depth),
            ARRAY(SELECT 'CANCELED' FROM unnest(v_ended.depths) AS ended(depth) WHERE ended.depth = v_depth),
            ARRAY(SELECT NULL::jsonb FROM unnest(v_ended.depths) AS ended(depth) WHERE ended.depth = v_depth), NULL,
            NULL, true, p_actor);
    END LOOP;
END $fn$;

-- Of one of its nodes it is not known whether it took effect.
CREATE OR REPLACE FUNCTION forebay_r1.is_unknown(p_id uuid) RETURNS boolean
LANGUAGE sql STABLE
AS $fn$
    SELECT EXISTS (SELECT 1
                     FROM forebay.workflow_execution_node node
                    WHERE node.execution_id = p_id AND node.status = 'UNKNOWN')
$fn$;

-- Makes dead letters of tickets whose execution is missing, with their audit rows, and frees their slots. What is open
-- below them ends, their waits and tasks are closed, and their jobs fail and are not tried again: nobody knows how far
-- they came. p_claims: the claim that must still hold the item; null for none.
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
        UPDATE forebay.execution_queue item SET status = 'FAILED', stage = forebay.stage_failed(), last_error = v_reason
          FROM unnest(p_ids, p_claims) AS asked(id, claim)
         WHERE item.id = asked.id AND item.status <> 'FAILED'
           AND (asked.claim IS NULL OR (item.status = 'CLAIMED' AND item.claim_id = asked.claim))
           AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution execution WHERE execution.id = asked.id)
        RETURNING item.id, item.workspace_id, item.workflow_definition_id, item.concurrency_key, item.gated,
                  item.claim_id IS NOT NULL AS freed),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT item.workspace_id, p_actor, 'queue_item.fail', 'queue_item', item.id,
               jsonb_build_object('type', 'EXECUTION_GONE', 'message', v_reason)
          FROM missing item)
    SELECT coalesce(array_agg(item.id), '{}') AS ids, array_agg(item.workspace_id) AS of,
           array_agg(item.freed) AS freed, array_agg(item.workspace_id) FILTER (WHERE item.gated) AS workspaces,
           array_agg(item.workflow_definition_id) FILTER (WHERE item.gated) AS definitions,
           array_agg(item.concurrency_key) FILTER (WHERE item.gated) AS keys
      INTO failed FROM missing item;
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
