-- Moves executions to a terminal status. Every execution ends here or in `record`, which passes an epoch instead of a
-- claim. Both call after_end, which does everything that follows, and also ends open descendants.
--
--   p_from    the status that each execution must have (null: any open status)
--   p_claims  the claim that a dispatcher must still hold (null: the run itself or a person decides)
--
-- The execution's status changes first. Then, in the same transaction, after_end does what follows.
--
-- If an execution had already ended, `applied` is false. Its outcome stays, but its queue item is still removed: a
-- terminal execution never keeps a queue item. If the execution row is missing, its queue item becomes a dead letter,
-- and `applied` is null.
--
-- Lock order: execution rows in id order, then queue rows.
CREATE OR REPLACE FUNCTION forebay_r1.complete(
    p_ids uuid[], p_outcomes text[], p_outputs jsonb[], p_errors jsonb[], p_claims uuid[], p_from text, p_actor text)
RETURNS TABLE (execution uuid, applied boolean, had_queue_item boolean, workspace uuid, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_ended uuid[];
    v_over record;
BEGIN
    PERFORM 1
      FROM forebay.workflow_execution requested
     WHERE requested.id = ANY (p_ids)
     ORDER BY requested.id
     FOR UPDATE;
    WITH requested AS (
        SELECT *
          FROM unnest(p_ids, p_outcomes, p_outputs, p_errors, p_claims)
               AS requested(id, outcome, output, error, claim)),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = requested.outcome, output = requested.output, error = requested.error,
               completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint,
               owner = NULL, owner_epoch = owner_epoch + 1
          FROM requested
         WHERE execution.id = requested.id AND execution.status IN ('PENDING', 'RUNNING')
           AND execution.status = coalesce(p_from, execution.status)
           AND (requested.claim IS NULL OR EXISTS (
                SELECT 1 FROM forebay.execution_queue queued
                 WHERE queued.id = requested.id AND queued.status = 'CLAIMED' AND queued.claim_id = requested.claim))
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
      FROM (SELECT DISTINCT each.id FROM unnest(p_ids) AS each(id)) requested
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.workflow_execution stored
                          WHERE stored.id = requested.id
                          LIMIT 1) execution
     WHERE execution.status NOT IN ('PENDING', 'RUNNING');

    IF v_ended <> '{}' AND EXISTS (
        SELECT 1
          FROM forebay.webhook live
         WHERE live.workspace_id = ANY (v_over.workspaces) AND live.disabled_at IS NULL) THEN
        PERFORM forebay_r1.add_deliveries(v_ended);
    END IF;

    RETURN QUERY
    SELECT terminal.id, terminal.id = ANY (v_ended), followed.had_queue_item, terminal.workspace_id, followed.freed
      FROM unnest(v_over.ids, v_over.workspaces) AS terminal(id, workspace_id)
      JOIN forebay_r1.after_end(v_over.ids, v_over.outcomes, v_over.errors, v_over.of_events, v_over.of_trees, true,
                                p_actor) AS followed
        ON followed.execution = terminal.id
    UNION ALL
    SELECT missing.id, NULL, true, missing.workspace_id, missing.freed
      FROM forebay_r1.fail_items_of_missing(p_ids, p_claims, p_actor) AS missing;
END $fn$;

-- What follows the end of executions, in the transaction that ended them. Each execution is named once.
--   open nodes settle       UNKNOWN if in flight and at most once, and with them their loop, or the node that made the
--                           child execution that they are in; the others CANCELED
--   its outcome             is stored for lists, unless it COMPLETED
--   requests                of the runs are deleted
--   the queue item          deleted, or FAILED, whatever its status, with an audit row
--   blocked items           those that waited for its limits are unblocked
--   jobs                    of executions that an event started, end (p_of_events, null for none)
-- Before that, the open descendants of executions in p_of_trees are ended. p_of_trees has the executions that may have
-- descendants, or is null for none.
CREATE OR REPLACE FUNCTION forebay_r1.after_end(
    p_ids uuid[], p_outcomes text[], p_errors jsonb[], p_of_events uuid[], p_of_trees uuid[], p_open boolean,
    p_actor text)
RETURNS TABLE (execution uuid, had_queue_item boolean, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_left record;
BEGIN
    IF p_of_trees IS NOT NULL THEN
        PERFORM forebay_r1.end_descendants(p_of_trees, p_actor);
    END IF;
    -- p_open: an execution that COMPLETED may have open nodes too. A run that reports its own completion has none.
    IF p_open OR 'COMPLETED' <> ANY (p_outcomes) THEN
        PERFORM forebay_r1.close_waits(p_ids);
        INSERT INTO forebay.execution_outcome (workspace_id, status, execution_id)
        SELECT ended.workspace_id, ended.status, ended.id FROM forebay.workflow_execution ended
         WHERE ended.id = ANY (p_ids) AND ended.depth = 0 AND ended.status IN ('FAILED', 'CANCELED', 'TIMED_OUT')
        ON CONFLICT DO NOTHING;
        WITH open_nodes AS (
            SELECT node.execution_id, node.node, node.iteration,
                   execution.last_seq
                       + row_number() OVER (PARTITION BY node.execution_id ORDER BY node.node, node.iteration) AS seq,
                   -- The descendants have already ended, so their rows show whether a result is unknown.
                   node.status = 'RUNNING' AND (node.once OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution child
                        WHERE child.parent = node.execution_id AND child.parent_node = node.node
                          AND child.parent_iteration = node.iteration AND child.parent_attempt = node.attempt
                          AND forebay_r1.is_unknown(child.id))) AS unknown
              FROM forebay.workflow_execution_node node
              JOIN forebay.workflow_execution execution ON execution.id = node.execution_id
             WHERE node.execution_id = ANY (p_ids) AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')),
        with_result AS (
            SELECT open.execution_id, open.node, open.iteration, open.seq,
                   open.unknown OR (open.iteration = 0 AND (
                       bool_or(open.unknown) OVER (PARTITION BY open.execution_id, open.node) OR EXISTS (
                       SELECT 1 FROM forebay.workflow_execution_node item
                        WHERE item.execution_id = open.execution_id AND item.node = open.node AND item.iteration > 0
                          AND item.status = 'UNKNOWN'))) AS unknown
              FROM open_nodes open),
        settled AS (
            UPDATE forebay.workflow_execution_node node
               SET status = CASE WHEN with_result.unknown THEN 'UNKNOWN' ELSE 'CANCELED' END,
                   error = CASE WHEN with_result.unknown THEN jsonb_build_object(
                       'type', 'RESULT_UNKNOWN', 'node', node.node, 'message',
                       'the execution was ended while a node that may be performed at most '
                       'once was running: find out whether it took effect, then rerun with resolve done or repeat')
                       ELSE node.error END,
                   completed_at = clock_timestamp(), next_at = NULL, seq = with_result.seq,
                   duration_ms = (extract(epoch FROM clock_timestamp() - node.started_at) * 1000)::bigint
              FROM with_result
             WHERE node.execution_id = with_result.execution_id AND node.node = with_result.node
               AND node.iteration = with_result.iteration
               AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')
            RETURNING node.execution_id, node.seq)
        UPDATE forebay.workflow_execution execution SET last_seq = progress.seq
          FROM (SELECT settled.execution_id, max(settled.seq) AS seq
                  FROM settled
                 GROUP BY settled.execution_id) progress
         WHERE execution.id = progress.execution_id;
    END IF;

    DELETE FROM forebay.run_request request WHERE request.execution_id = ANY (p_ids);
    WITH deleted AS (
        DELETE FROM forebay.execution_queue queued
         WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                       WHERE ended.outcome IN ('COMPLETED', 'CANCELED')))
           AND queued.status <> 'FAILED'
        RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key, queued.limited,
                  queued.claim_id IS NOT NULL AS freed)
    SELECT coalesce(array_agg(item.id), '{}') AS ids, array_agg(item.freed) AS freed,
           array_agg(item.workspace_id) FILTER (WHERE item.limited) AS workspaces,
           array_agg(item.workflow_definition_id) FILTER (WHERE item.limited) AS definitions,
           array_agg(item.concurrency_key) FILTER (WHERE item.limited) AS keys
      INTO v_left FROM deleted item;
    -- A statement of its own, because preparing it costs every call, and few executions fail.
    IF p_outcomes && ARRAY['FAILED', 'TIMED_OUT'] THEN
        WITH failed AS (
            UPDATE forebay.execution_queue queued
               SET status = 'FAILED', stage = forebay.stage_failed(), claim_number = NULL, owner = NULL,
                   last_error = (SELECT coalesce(ended.error ->> 'message', ended.outcome)
                                   FROM unnest(p_ids, p_outcomes, p_errors) AS ended(id, outcome, error)
                                  WHERE ended.id = queued.id
                                  LIMIT 1)
             WHERE queued.id = ANY (ARRAY(SELECT ended.id FROM unnest(p_ids, p_outcomes) AS ended(id, outcome)
                                           WHERE ended.outcome IN ('FAILED', 'TIMED_OUT')))
               AND queued.status <> 'FAILED'
            RETURNING queued.id, queued.workspace_id, queued.workflow_definition_id, queued.concurrency_key,
                      queued.limited, queued.claim_id IS NOT NULL AS freed),
        audited AS (
            INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
            SELECT failed.workspace_id, p_actor, 'queue_item.fail', 'queue_item', failed.id, ended.error
              FROM failed JOIN unnest(p_ids, p_errors) AS ended(id, error) ON ended.id = failed.id)
        SELECT v_left.ids || array_agg(item.id) AS ids, v_left.freed || array_agg(item.freed) AS freed,
               v_left.workspaces || array_agg(item.workspace_id) FILTER (WHERE item.limited) AS workspaces,
               v_left.definitions || array_agg(item.workflow_definition_id) FILTER (WHERE item.limited) AS definitions,
               v_left.keys || array_agg(item.concurrency_key) FILTER (WHERE item.limited) AS keys
          INTO v_left FROM failed item;
    END IF;

    -- For each item, unblock is called once with its key and once with its definition alone.
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

-- Ends the open descendants of ended executions, because no process runs them any longer. The parent of an open child
-- is open too, so only open executions have to be followed. Their rows are locked after their root's, as everywhere.
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
        -- OFFSET 0: one index probe each, never a join that reads every open execution.
        SELECT child.id FROM descendants CROSS JOIN LATERAL (
            SELECT below.id FROM forebay.workflow_execution below
             WHERE below.parent = descendants.id AND below.completed_at IS NULL OFFSET 0) child),
    ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'CANCELED', completed_at = clock_timestamp(), owner = NULL, owner_epoch = owner_epoch + 1,
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
    -- Deepest first: if a child's result is unknown, so is the result of the node that made the child.
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

-- Is at least one node of this execution UNKNOWN, so that nobody knows whether the node took effect?
CREATE OR REPLACE FUNCTION forebay_r1.is_unknown(p_id uuid) RETURNS boolean
LANGUAGE sql STABLE
AS $fn$
    SELECT EXISTS (SELECT 1
                     FROM forebay.workflow_execution_node node
                    WHERE node.execution_id = p_id AND node.status = 'UNKNOWN')
$fn$;

-- Turns queue items whose execution row is missing into dead letters, with audit rows, and frees their slots. Also ends
-- the open descendants of these executions, and closes their waits and tasks. Their jobs fail without a retry, because
-- nobody knows how far the executions got. p_claims: the claim that must still hold the item (null: none).
--
-- Lock order: there is no root row to lock, so the queue item is locked instead, before the descendants.
CREATE OR REPLACE FUNCTION forebay_r1.fail_items_of_missing(p_ids uuid[], p_claims uuid[], p_actor text)
RETURNS TABLE (id uuid, workspace_id uuid, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_reason constant text := 'the execution row is missing: somebody deleted it';
    v_failed record;
BEGIN
    WITH missing AS (
        UPDATE forebay.execution_queue item
           SET status = 'FAILED', stage = forebay.stage_failed(), claim_number = NULL, owner = NULL,
               last_error = v_reason
          FROM unnest(p_ids, p_claims) AS requested(id, claim)
         WHERE item.id = requested.id AND item.status <> 'FAILED'
           AND (requested.claim IS NULL OR (item.status = 'CLAIMED' AND item.claim_id = requested.claim))
           AND NOT EXISTS (SELECT 1 FROM forebay.workflow_execution execution WHERE execution.id = requested.id)
        RETURNING item.id, item.workspace_id, item.workflow_definition_id, item.concurrency_key, item.limited,
                  item.claim_id IS NOT NULL AS freed),
    audited AS (
        INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
        SELECT item.workspace_id, p_actor, 'queue_item.fail', 'queue_item', item.id,
               jsonb_build_object('type', 'EXECUTION_GONE', 'message', v_reason)
          FROM missing item)
    SELECT coalesce(array_agg(item.id), '{}') AS ids, array_agg(item.workspace_id) AS of,
           array_agg(item.freed) AS freed, array_agg(item.workspace_id) FILTER (WHERE item.limited) AS workspaces,
           array_agg(item.workflow_definition_id) FILTER (WHERE item.limited) AS definitions,
           array_agg(item.concurrency_key) FILTER (WHERE item.limited) AS keys
      INTO v_failed FROM missing item;
    IF v_failed.ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM forebay_r1.end_descendants(v_failed.ids, p_actor);
    PERFORM forebay_r1.close_waits(v_failed.ids);
    DELETE FROM forebay.run_request request WHERE request.execution_id = ANY (v_failed.ids);
    IF v_failed.workspaces IS NOT NULL THEN
        PERFORM forebay.unblock(v_failed.workspaces || v_failed.workspaces,
                                v_failed.definitions || v_failed.definitions,
                                v_failed.keys || array_fill(NULL::text, ARRAY[cardinality(v_failed.workspaces)]));
    END IF;
    PERFORM forebay_r1.fail_jobs_of_missing(v_failed.ids);
    RETURN QUERY SELECT * FROM unnest(v_failed.ids, v_failed.of, v_failed.freed);
END $fn$;
