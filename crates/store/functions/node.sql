-- Nodes of runs for which several workers may act, because an external engine hands out the work. A worker starts an
-- attempt, and then reports its result. A call covers the attempts of many runs, in one commit.
--
-- There are two fences. The fence of the run is that of functions/record.sql: owner, epoch and RUNNING, checked under
-- the row's lock; the rows are locked in id order. The fence of the node is a number that each start raises and that
-- the report must pass. So a worker whose attempt another worker has started again changes nothing.
--
-- The arrays are parallel. The answers have the positions of the attempts in them, from 1. The caller names each node
-- and iteration of a run once.

-- Starts attempts at nodes, or at iterations of loops. If a node has settled, or its next attempt is not due yet, it is
-- returned unchanged. A repeated call starts the same attempt again, so the death of a worker costs no attempt. begun:
-- a worker began a call of this attempt that may be made at most once, and did not report it.
CREATE OR REPLACE FUNCTION forebay_r1.start_attempts(
    p_executions uuid[], p_owners uuid[], p_epochs bigint[], p_nodes text[], p_iterations int[], p_inputs jsonb[])
RETURNS TABLE (attempt_at bigint, held boolean, status text, label text, attempt int, fence int, next_in_ms bigint,
               error jsonb, begun boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    -- By position. The workspace is null if the run is not held.
    v_workspaces uuid[];
    v_begun boolean[];
BEGIN
    v_workspaces := forebay_r1.lock_held(p_executions, p_owners, p_epochs);
    v_begun := ARRAY(
        SELECT coalesce(node.status = 'RUNNING' AND node.once, false)
          FROM unnest(p_executions, p_nodes, p_iterations) WITH ORDINALITY AS given(execution_id, node, iteration, ord)
          -- LIMIT 1, here and below: always a primary-key probe, never a scan.
          LEFT JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_node stored
                WHERE stored.execution_id = given.execution_id AND stored.node = given.node
                  AND stored.iteration = given.iteration
                LIMIT 1) node ON true
         ORDER BY given.ord);
    INSERT INTO forebay.workflow_execution_node AS node (execution_id, node, iteration, workspace_id, status, attempt,
                                                         fence, input, started_at, once)
    SELECT given.execution_id, given.node, given.iteration, given.workspace_id, 'RUNNING', 1, 1, given.input,
           clock_timestamp(), false
      FROM unnest(p_executions, v_workspaces, p_nodes, p_iterations, p_inputs)
           AS given(execution_id, workspace_id, node, iteration, input)
     WHERE given.workspace_id IS NOT NULL
    ON CONFLICT (execution_id, node, iteration) DO UPDATE
       SET status = 'RUNNING', fence = node.fence + 1, input = coalesce(excluded.input, node.input),
           attempt = greatest(node.attempt, 1), started_at = coalesce(node.started_at, excluded.started_at),
           once = node.status = 'RUNNING' AND node.once,
           next_at = CASE WHEN node.status = 'RUNNING' THEN node.next_at END
     WHERE node.status IN ('PENDING', 'RUNNING') OR (node.status = 'RETRYING' AND node.next_at <= clock_timestamp());
    INSERT INTO forebay.change_log (topic, op, refs, workspaces)
    SELECT 'nodes', 'UPDATE', array_agg(moved.execution_id), array_agg(moved.workspace_id)
      FROM (SELECT DISTINCT given.execution_id, given.workspace_id
              FROM unnest(p_executions, v_workspaces) AS given(execution_id, workspace_id)
             WHERE given.workspace_id IS NOT NULL) moved
    HAVING count(*) > 0;
    RETURN QUERY
    SELECT given.ord, given.workspace_id IS NOT NULL, node.status, node.label, node.attempt, node.fence,
           (extract(epoch FROM node.next_at - clock_timestamp()) * 1000)::bigint, node.error, v_begun[given.ord]
      FROM unnest(p_executions, v_workspaces, p_nodes, p_iterations)
           WITH ORDINALITY AS given(execution_id, workspace_id, node, iteration, ord)
      LEFT JOIN LATERAL (
           SELECT * FROM forebay.workflow_execution_node stored
            WHERE stored.execution_id = given.execution_id AND stored.node = given.node
              AND stored.iteration = given.iteration
            LIMIT 1) node ON true;
END $fn$;

-- Reports the results of attempts that were started under these fences. held: the owner still owns the run. current: no
-- worker has started the attempt again and the node had not settled, so the result is stored. p_outcomes: with this
-- result the run ends, with this outcome, output and error (null: it goes on). freed: the workspace in which the end
-- freed a slot.
CREATE OR REPLACE FUNCTION forebay_r1.report_attempts(
    p_executions uuid[], p_owners uuid[], p_epochs bigint[], p_fences int[], p_nodes text[], p_iterations int[],
    p_statuses text[], p_attempts int[], p_next_in_ms bigint[], p_labels text[], p_outputs jsonb[], p_errors jsonb[],
    p_outcomes text[], p_end_outputs jsonb[], p_end_errors jsonb[], p_actor text)
RETURNS TABLE (report_at bigint, held boolean, current boolean, ended boolean, freed uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_workspaces uuid[];
    v_current boolean[];
    v_runs uuid[];
    v_epochs bigint[];
    v_facts record;
    v_ends record;
    v_ended boolean[];
    v_freed uuid[];
BEGIN
    v_workspaces := forebay_r1.lock_held(p_executions, p_owners, p_epochs);
    v_current := ARRAY(
        SELECT node.execution_id IS NOT NULL
          FROM unnest(p_executions, v_workspaces, p_nodes, p_iterations, p_fences)
               WITH ORDINALITY AS given(execution_id, workspace_id, node, iteration, fence, ord)
          LEFT JOIN LATERAL (
               SELECT * FROM forebay.workflow_execution_node stored
                WHERE stored.execution_id = given.execution_id AND stored.node = given.node
                  AND stored.iteration = given.iteration
                LIMIT 1) node
            ON node.fence = given.fence AND node.status IN ('PENDING', 'RUNNING', 'RETRYING')
           AND given.workspace_id IS NOT NULL
         ORDER BY given.ord);
    SELECT array_agg(run.id), array_agg(run.epoch)
      INTO v_runs, v_epochs
      FROM (SELECT DISTINCT given.id, given.epoch
              FROM unnest(p_executions, p_epochs) WITH ORDINALITY AS given(id, epoch, ord)
             WHERE v_current[given.ord]) run;
    IF v_runs IS NOT NULL THEN
        SELECT array_agg(array_position(v_runs, given.execution_id) ORDER BY given.ord) AS runs,
               array_agg(given.node ORDER BY given.ord) AS nodes,
               array_agg(given.iteration ORDER BY given.ord) AS iterations,
               array_agg(given.status ORDER BY given.ord) AS statuses,
               array_agg(given.attempt ORDER BY given.ord) AS attempts,
               array_agg(given.next_in_ms ORDER BY given.ord) AS next_in_ms,
               array_agg(given.label ORDER BY given.ord) AS labels,
               array_agg(given.output ORDER BY given.ord) AS outputs,
               array_agg(given.error ORDER BY given.ord) AS errors,
               array_agg(NULL::jsonb) AS no_inputs, array_agg(false) AS never_once
          INTO v_facts
          FROM unnest(p_executions, p_nodes, p_iterations, p_statuses, p_attempts, p_next_in_ms, p_labels, p_outputs,
                      p_errors)
               WITH ORDINALITY AS given(execution_id, node, iteration, status, attempt, next_in_ms, label, output,
                                        error, ord)
         WHERE v_current[given.ord];
        SELECT coalesce(array_agg(array_position(v_runs, given.execution_id) ORDER BY given.ord), '{}') AS runs,
               coalesce(array_agg(given.settled ORDER BY given.ord), '{}') AS settled,
               coalesce(array_agg(given.outcome ORDER BY given.ord), '{}') AS outcomes,
               coalesce(array_agg(given.output ORDER BY given.ord), '{}') AS outputs,
               coalesce(array_agg(given.error ORDER BY given.ord), '{}') AS errors
          INTO v_ends
          FROM (SELECT ending.*, (SELECT count(*)::int
                                    FROM unnest(p_executions, p_statuses) WITH ORDINALITY AS fact(id, status, ord)
                                   WHERE fact.id = ending.execution_id AND v_current[fact.ord]
                                     AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN'))
                       AS settled
                  FROM unnest(p_executions, p_outcomes, p_end_outputs, p_end_errors)
                       WITH ORDINALITY AS ending(execution_id, outcome, output, error, ord)
                 WHERE ending.outcome IS NOT NULL AND v_current[ending.ord]) given;
        SELECT array_agg(recorded.ended ORDER BY recorded.run),
               array_agg(CASE WHEN recorded.freed THEN recorded.workspace END ORDER BY recorded.run)
          INTO v_ended, v_freed
          -- The rows are locked and every run is held, whoever owns it: no owner has to be named.
          FROM forebay_r1.record(
               NULL, v_runs, v_runs, v_epochs, array_fill(NULL::bigint, ARRAY[cardinality(v_runs)]),
               v_facts.runs, v_facts.nodes, v_facts.iterations, v_facts.statuses, v_facts.attempts, v_facts.next_in_ms,
               v_facts.labels, v_facts.no_inputs, v_facts.outputs, v_facts.errors, v_facts.never_once,
               v_ends.runs, v_ends.settled, v_ends.outcomes, v_ends.outputs, v_ends.errors, p_actor) recorded;
    END IF;
    RETURN QUERY
    SELECT given.ord, given.workspace_id IS NOT NULL, v_current[given.ord],
           given.outcome IS NOT NULL AND coalesce(v_ended[array_position(v_runs, given.execution_id)], false),
           CASE WHEN given.outcome IS NOT NULL THEN v_freed[array_position(v_runs, given.execution_id)] END
      FROM unnest(p_executions, v_workspaces, p_outcomes)
           WITH ORDINALITY AS given(execution_id, workspace_id, outcome, ord);
END $fn$;

-- Locks the rows of these runs, in id order. Returns the workspace of each run that this owner holds in this epoch, by
-- position; null for any other.
CREATE OR REPLACE FUNCTION forebay_r1.lock_held(p_executions uuid[], p_owners uuid[], p_epochs bigint[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
BEGIN
    RETURN (SELECT array_agg(holder.workspace_id ORDER BY given.ord)
              FROM (SELECT *
                      FROM unnest(p_executions, p_owners, p_epochs)
                           WITH ORDINALITY AS given(execution_id, owner, epoch, ord)
                     ORDER BY given.execution_id) given
              LEFT JOIN LATERAL (
                   SELECT execution.workspace_id FROM forebay.workflow_execution execution
                    WHERE execution.id = given.execution_id AND execution.owner = given.owner
                      AND execution.owner_epoch = given.epoch AND execution.status = 'RUNNING'
                      FOR UPDATE) holder ON true);
END $fn$;
