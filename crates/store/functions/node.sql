-- One node of a run that several workers may act for, because an engine elsewhere hands its work out: taken, and
-- then told of.
--
-- Two fences. The run's is that of functions/record.sql: owner, epoch and RUNNING under the row's lock. The node's
-- is a number that each taking raises and that whoever tells of it must show: an attempt that was slow, and overtaken
-- by its successor, changes nothing.

-- Takes a node, or one iteration of a loop, for an attempt. One that is settled, or whose next attempt is not due yet,
-- is left and answered as it stands. A repeat is the same attempt again: a worker that died costs none. again: somebody
-- had begun a call of this attempt that may be made at most once, and did not tell of it. p_once: it counts as begun
-- with the taking, as releases before begin_once.sql had it.
CREATE OR REPLACE FUNCTION forebay_r1.take_node(
    p_execution uuid, p_owner uuid, p_epoch bigint, p_node text, p_iteration int, p_input jsonb, p_once boolean)
RETURNS TABLE (held boolean, status text, label text, attempt int, fence int, next_in_ms bigint, error jsonb,
               again boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_again boolean;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution execution
     WHERE execution.id = p_execution AND execution.owner = p_owner AND execution.owner_epoch = p_epoch
       AND execution.status = 'RUNNING'
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::text, NULL::text, 0, 0, NULL::bigint, NULL::jsonb, false;
        RETURN;
    END IF;
    v_again := coalesce((SELECT node.status = 'RUNNING' AND node.once FROM forebay.workflow_execution_node node
                          WHERE node.execution_id = p_execution AND node.node = p_node
                            AND node.iteration = p_iteration), false);
    INSERT INTO forebay.workflow_execution_node AS node (execution_id, node, iteration, workspace_id, status, attempt,
                                                         fence, input, started_at, once)
    SELECT execution.id, p_node, p_iteration, execution.workspace_id, 'RUNNING', 1, 1, p_input, clock_timestamp(),
           p_once
      FROM forebay.workflow_execution execution WHERE execution.id = p_execution
    ON CONFLICT (execution_id, node, iteration) DO UPDATE
       SET status = 'RUNNING', fence = node.fence + 1, input = coalesce(excluded.input, node.input),
           attempt = greatest(node.attempt, 1), started_at = coalesce(node.started_at, excluded.started_at),
           once = excluded.once OR (node.status = 'RUNNING' AND node.once),
           next_at = CASE WHEN node.status = 'RUNNING' THEN node.next_at END
     WHERE node.status IN ('PENDING', 'RUNNING') OR (node.status = 'RETRYING' AND node.next_at <= clock_timestamp());
    INSERT INTO forebay.change_log (topic, op, refs, workspaces)
    SELECT 'nodes', 'UPDATE', ARRAY[execution.id], ARRAY[execution.workspace_id]
      FROM forebay.workflow_execution execution
     WHERE execution.id = p_execution;
    RETURN QUERY
    SELECT true, node.status, node.label, node.attempt, node.fence,
           (extract(epoch FROM node.next_at - clock_timestamp()) * 1000)::bigint, node.error, v_again
      FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration = p_iteration;
END $fn$;

-- Tells what became of an attempt that was taken under this fence. held: the run is still this owner's; current: the
-- attempt was not overtaken and the node not settled, so that it is stored.
CREATE OR REPLACE FUNCTION forebay_r1.report_node(
    p_execution uuid, p_owner uuid, p_epoch bigint, p_node text, p_iteration int, p_fence int, p_status text,
    p_attempt int, p_next_in_ms bigint, p_label text, p_output jsonb, p_error jsonb, p_actor text)
RETURNS TABLE (held boolean, current boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM forebay.workflow_execution execution
     WHERE execution.id = p_execution AND execution.owner = p_owner AND execution.owner_epoch = p_epoch
       AND execution.status = 'RUNNING'
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, false;
        RETURN;
    END IF;
    PERFORM 1 FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration = p_iteration
       AND node.fence = p_fence
       AND node.status IN ('PENDING', 'RUNNING', 'RETRYING');
    IF NOT FOUND THEN
        RETURN QUERY SELECT true, false;
        RETURN;
    END IF;
    PERFORM 1 FROM forebay_r1.record(
        p_owner, ARRAY[p_execution], ARRAY[p_execution], ARRAY[p_epoch], ARRAY[NULL::bigint],
        ARRAY[1], ARRAY[p_node], ARRAY[p_iteration], ARRAY[p_status], ARRAY[p_attempt], ARRAY[p_next_in_ms],
        ARRAY[p_label], ARRAY[NULL::jsonb], ARRAY[p_output], ARRAY[p_error], ARRAY[false],
        '{}'::int[], '{}'::int[], '{}'::text[], '{}'::jsonb[], '{}'::jsonb[], p_actor);
    RETURN QUERY SELECT true, true;
END $fn$;
