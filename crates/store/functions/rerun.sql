-- Accepts one execution that reruns another and keeps the results of some of its nodes. The start and the copies of the
-- node rows are one commit. Repeatable like any start: only the call that returns 'accepted' copies rows.
--
-- The nodes of p_done ended UNKNOWN, and a person found out that they took effect: their copies are COMPLETED. If a
-- node of p_done is a loop, the copies of its UNKNOWN iterations are COMPLETED too.
--
-- The loops of p_loops continue. The loop's own row is PENDING and has the list of the original. COMPLETED and SKIPPED
-- iterations are kept; FAILED iterations are kept only if the loop continues after a failure. If the original loop
-- never had a list, the loop starts from the beginning.
--
-- The copies keep the order in which the nodes settled. Nodes that the new execution settles come after them.
CREATE OR REPLACE FUNCTION forebay_r1.rerun(
    p_id uuid, p_workspace uuid, p_definition uuid, p_input jsonb, p_priority smallint, p_key text, p_idempotency text,
    p_fingerprint bytea, p_trigger jsonb, p_trace text, p_version uuid, p_of uuid, p_kept text[], p_actor text,
    p_semantics int, p_step_ms bigint, p_max_backlog int, p_done text[], p_loops text[])
RETURNS TABLE (ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_started record;
BEGIN
    SELECT * INTO v_started FROM forebay.enqueue_many(
        ARRAY[p_id], ARRAY[p_workspace], ARRAY[p_definition], ARRAY[p_input], ARRAY[p_priority],
        ARRAY[NULL::timestamptz], ARRAY[p_key], ARRAY[p_idempotency], ARRAY[p_fingerprint], ARRAY[p_trigger],
        ARRAY[p_trace], ARRAY[p_version], ARRAY[p_of], ARRAY[p_actor], p_semantics, p_step_ms, p_max_backlog, true);
    IF v_started.outcome = 'accepted' THEN
        WITH loops AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, input)
            SELECT p_id, original.node, 0, original.workspace_id, 'PENDING', original.input
              FROM forebay.workflow_execution_node original
             WHERE original.execution_id = p_of AND original.workspace_id = p_workspace
               AND original.node = ANY (p_loops) AND original.iteration = 0
               AND original.input IS NOT NULL
            RETURNING node, coalesce(input ->> 'on_item_error', 'fail') <> 'fail' AS goes_on),
        copied AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, attempt,
                seq, label, input, output, error, earlier, started_at, completed_at, duration_ms, kept_from)
            SELECT p_id, original.node, original.iteration, original.workspace_id,
                   CASE WHEN original.node = ANY (p_done) AND original.status = 'UNKNOWN' THEN 'COMPLETED'
                        ELSE original.status END, original.attempt,
                   row_number() OVER (ORDER BY original.seq, original.node, original.iteration), original.label,
                   original.input, original.output,
                   CASE WHEN original.node = ANY (p_done) AND original.status = 'UNKNOWN' THEN NULL
                        ELSE original.error END, original.earlier, original.started_at, original.completed_at,
                   original.duration_ms, coalesce(original.kept_from, original.execution_id)
              FROM forebay.workflow_execution_node original
              LEFT JOIN loops ON loops.node = original.node
             WHERE original.execution_id = p_of AND original.workspace_id = p_workspace AND original.seq IS NOT NULL
               AND (original.node = ANY (p_kept) OR (loops.node IS NOT NULL AND original.iteration > 0 AND (
                    original.status IN ('COMPLETED', 'SKIPPED') OR (original.status = 'FAILED' AND loops.goes_on)
                    OR (original.status = 'UNKNOWN' AND original.node = ANY (p_done)))))
            RETURNING seq)
        UPDATE forebay.workflow_execution execution SET last_seq = (SELECT max(copied.seq) FROM copied)
         WHERE execution.id = p_id AND execution.status = 'PENDING' AND EXISTS (SELECT 1 FROM copied);
    END IF;
    RETURN QUERY SELECT v_started.ord, v_started.outcome, v_started.execution, v_started.workspace, v_started.stage;
END $fn$;
