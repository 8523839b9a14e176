-- The first step of every run: may it perform nodes? Guarded by the execution's status and the
-- item's slot, not by a claim (it may have been started under a claim since taken over), and
-- repeatable. Answers: granted (it was PENDING with a slot, or it is RUNNING for this owner),
-- ended (terminal, or another run has it), not_yet (no slot), gone (no such execution). A child runs in its root's slot: it
-- has one as long as its root is RUNNING, whose row is locked before its own.
--
-- p_where: the place (a cluster and namespace) that the run lives in, where that is not this database. The owner is then
-- the engine's own run: another one under the same name is told that it has ended.
CREATE OR REPLACE FUNCTION forebay_r1.begin_runs(p_ids uuid[], p_engine text, p_where text, p_process uuid, p_semantics int)
RETURNS TABLE (
    execution uuid, answer text, workspace uuid, definition uuid, version uuid, epoch bigint, input jsonb, trigger jsonb,
    created timestamptz, deadline_in_ms bigint, trace text)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    roots uuid[];
    slots uuid[];
BEGIN
    SELECT array_agg(e.root) INTO roots FROM forebay.workflow_execution e WHERE e.id = ANY (p_ids) AND e.parent IS NOT NULL;
    IF roots IS NOT NULL THEN
        PERFORM 1 FROM forebay.workflow_execution e WHERE e.id = ANY (roots) ORDER BY e.id FOR UPDATE;
    END IF;
    PERFORM 1 FROM forebay.workflow_execution e WHERE e.id = ANY (p_ids) ORDER BY e.id FOR UPDATE;
    -- Locked as well: an item given back at this moment would leave a run without a slot.
    SELECT coalesce(array_agg(q.id), '{}') INTO slots FROM (
        SELECT q.id FROM forebay.execution_queue q
         WHERE q.id = ANY (p_ids) AND q.status IN ('CLAIMED', 'DISPATCHED') ORDER BY q.id FOR UPDATE) q;
    IF roots IS NOT NULL THEN
        slots := slots || ARRAY(
            SELECT e.id FROM forebay.workflow_execution e
             WHERE e.id = ANY (p_ids) AND e.parent IS NOT NULL
               AND (SELECT r.status FROM forebay.workflow_execution r WHERE r.id = e.root) = 'RUNNING');
    END IF;
    WITH e AS (
        UPDATE forebay.workflow_execution e
           SET status = 'RUNNING', engine = p_engine, engine_where = p_where, owner = p_process,
               engine_run_id = CASE WHEN p_where IS NOT NULL THEN p_process::text END, owner_epoch = owner_epoch + 1,
               started_at = clock_timestamp(),
               deadline_at = least(e.deadline_at, clock_timestamp() + make_interval(secs => e.timeout_ms / 1000.0))
         WHERE e.id = ANY (slots) AND e.status = 'PENDING' AND e.semantics <= p_semantics
        RETURNING e.id, e.workspace_id)
    INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
    SELECT 'execution', 'UPDATE', array_agg(e.id), array_agg(e.workspace_id), 'RUNNING' FROM e HAVING count(*) > 0;
    UPDATE forebay.execution_queue q SET status = 'DISPATCHED', dispatched_at = clock_timestamp()
      FROM forebay.workflow_execution e
     WHERE q.id = ANY (slots) AND q.status = 'CLAIMED' AND e.id = q.id AND e.status = 'RUNNING' AND e.owner = p_process;
    RETURN QUERY
    SELECT t.id,
           CASE WHEN e.id IS NULL THEN 'gone'
                WHEN e.status = 'RUNNING' AND e.owner = p_process THEN 'granted'
                WHEN e.status = 'PENDING' THEN 'not_yet'
                ELSE 'ended' END,
           e.workspace_id, e.workflow_definition_id, e.version_id, e.owner_epoch, e.input, e.trigger, e.created_at,
           (extract(epoch FROM e.deadline_at - clock_timestamp()) * 1000)::bigint, e.trace_context
      FROM unnest(p_ids) AS t(id) LEFT JOIN forebay.workflow_execution e ON e.id = t.id;
END $fn$;
