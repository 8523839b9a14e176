-- Accepts one execution that repeats another and keeps what some of its nodes produced: the start,
-- and copies of their rows, in one commit. Repeatable like any start: only the call that is answered
-- 'accepted' copied anything.
--
-- A node of p_done ended UNKNOWN, and a person found out that it took effect: its copy is COMPLETED. So is an iteration
-- of a loop of p_done that is not known.
--
-- A loop of p_loops goes on: its own row is there with its list, PENDING, and its iterations that came to an end keep
-- it: COMPLETED and SKIPPED ones, and FAILED ones if the loop goes on after a failure. One that never had a list begins
-- anew.
--
-- The copies keep the order in which the nodes settled; what the new execution settles comes after.
CREATE OR REPLACE FUNCTION forebay_r1.rerun(
    p_id uuid, p_workspace uuid, p_definition uuid, p_input jsonb, p_priority smallint, p_key text, p_idempotency text,
    p_fingerprint bytea, p_trigger jsonb, p_trace text, p_version uuid, p_of uuid, p_kept text[], p_actor text,
    p_semantics int, p_step_ms bigint, p_max_backlog int, p_done text[], p_loops text[])
RETURNS TABLE (ord bigint, outcome text, execution uuid, workspace uuid, stage smallint)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    r record;
BEGIN
    SELECT * INTO r FROM forebay.enqueue_many(
        ARRAY[p_id], ARRAY[p_workspace], ARRAY[p_definition], ARRAY[p_input], ARRAY[p_priority], ARRAY[NULL::timestamptz],
        ARRAY[p_key], ARRAY[p_idempotency], ARRAY[p_fingerprint], ARRAY[p_trigger], ARRAY[p_trace], ARRAY[p_version],
        ARRAY[p_of], p_actor, p_semantics, p_step_ms, p_max_backlog, true);
    IF r.outcome = 'accepted' THEN
        WITH g AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, input)
            SELECT p_id, o.node, 0, o.workspace_id, 'PENDING', o.input
              FROM forebay.workflow_execution_node o
             WHERE o.execution_id = p_of AND o.workspace_id = p_workspace AND o.node = ANY (p_loops) AND o.iteration = 0
               AND o.input IS NOT NULL
            RETURNING node, coalesce(input ->> 'on_item_error', 'fail') <> 'fail' AS goes_on),
        n AS (
            INSERT INTO forebay.workflow_execution_node (execution_id, node, iteration, workspace_id, status, attempt, seq, label,
                input, output, error, earlier, started_at, completed_at, duration_ms, kept_from)
            SELECT p_id, o.node, o.iteration, o.workspace_id, CASE WHEN o.node = ANY (p_done) AND o.status = 'UNKNOWN' THEN 'COMPLETED' ELSE o.status END, o.attempt,
                   row_number() OVER (ORDER BY o.seq, o.node, o.iteration), o.label, o.input, o.output,
                   CASE WHEN o.node = ANY (p_done) AND o.status = 'UNKNOWN' THEN NULL ELSE o.error END, o.earlier,
                   o.started_at, o.completed_at, o.duration_ms, coalesce(o.kept_from, o.execution_id)
              FROM forebay.workflow_execution_node o
              LEFT JOIN g ON g.node = o.node
             WHERE o.execution_id = p_of AND o.workspace_id = p_workspace AND o.seq IS NOT NULL
               AND (o.node = ANY (p_kept) OR (g.node IS NOT NULL AND o.iteration > 0 AND (
                    o.status IN ('COMPLETED', 'SKIPPED') OR (o.status = 'FAILED' AND g.goes_on)
                    OR (o.status = 'UNKNOWN' AND o.node = ANY (p_done)))))
            RETURNING seq)
        UPDATE forebay.workflow_execution e SET last_seq = (SELECT max(n.seq) FROM n)
         WHERE e.id = p_id AND e.status = 'PENDING' AND EXISTS (SELECT 1 FROM n);
    END IF;
    RETURN QUERY SELECT r.ord, r.outcome, r.execution, r.workspace, r.stage;
END $fn$;
