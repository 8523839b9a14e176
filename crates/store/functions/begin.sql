-- The first step of every run: may it perform nodes? Guarded by the execution's status and the
-- item's slot, not by a claim (it may have been started under a claim since taken over), and
-- repeatable. Answers: granted (it was PENDING with a slot, or it is RUNNING for this owner),
-- ended (terminal, or another run has it), not_yet (no slot), gone (no such execution). A child runs in its root's
-- slot: it has one as long as its root is RUNNING, whose row is locked before its own.
--
-- p_where: the place (a cluster and namespace) that the run lives in, where that is not this database. The owner is
-- then the engine's own run: another one under the same name is told that it has ended.
CREATE OR REPLACE FUNCTION forebay_r1.begin_runs(
    p_ids uuid[], p_engine text, p_where text, p_process uuid, p_semantics int)
RETURNS TABLE (
    execution uuid, answer text, workspace uuid, definition uuid, version uuid, epoch bigint, input jsonb,
    trigger jsonb, created timestamptz, deadline_in_ms bigint, trace text)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_roots uuid[];
    v_with_slot uuid[];
BEGIN
    SELECT array_agg(child.root)
      INTO v_roots
      FROM forebay.workflow_execution child
     WHERE child.id = ANY (p_ids) AND child.parent IS NOT NULL;
    IF v_roots IS NOT NULL THEN
        PERFORM 1 FROM forebay.workflow_execution root WHERE root.id = ANY (v_roots) ORDER BY root.id FOR UPDATE;
    END IF;
    PERFORM 1 FROM forebay.workflow_execution asked WHERE asked.id = ANY (p_ids) ORDER BY asked.id FOR UPDATE;
    -- Locked as well: an item given back at this moment would leave a run without a slot.
    SELECT coalesce(array_agg(holder.id), '{}') INTO v_with_slot FROM (
        SELECT queued.id FROM forebay.execution_queue queued
         WHERE queued.id = ANY (p_ids) AND queued.status IN ('CLAIMED', 'DISPATCHED')
         ORDER BY queued.id
         FOR UPDATE) holder;
    IF v_roots IS NOT NULL THEN
        v_with_slot := v_with_slot || ARRAY(
            SELECT child.id FROM forebay.workflow_execution child
             WHERE child.id = ANY (p_ids) AND child.parent IS NOT NULL
               AND (SELECT root.status FROM forebay.workflow_execution root WHERE root.id = child.root) = 'RUNNING');
    END IF;
    WITH begun AS (
        UPDATE forebay.workflow_execution pending
           SET status = 'RUNNING', engine = p_engine, engine_where = p_where, owner = p_process,
               engine_run_id = CASE WHEN p_where IS NOT NULL THEN p_process::text END, owner_epoch = owner_epoch + 1,
               started_at = clock_timestamp(),
               deadline_at = least(pending.deadline_at,
                                   clock_timestamp() + make_interval(secs => pending.timeout_ms / 1000.0))
         WHERE pending.id = ANY (v_with_slot) AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
        RETURNING pending.id, pending.workspace_id)
    INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
    SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING'
      FROM begun
     HAVING count(*) > 0;
    UPDATE forebay.execution_queue queued SET status = 'DISPATCHED', dispatched_at = clock_timestamp()
      FROM forebay.workflow_execution own
     WHERE queued.id = ANY (v_with_slot) AND queued.status = 'CLAIMED'
       AND own.id = queued.id AND own.status = 'RUNNING' AND own.owner = p_process;
    RETURN QUERY
    SELECT asked.id,
           CASE WHEN stored.id IS NULL THEN 'gone'
                WHEN stored.status = 'RUNNING' AND stored.owner = p_process THEN 'granted'
                WHEN stored.status = 'PENDING' THEN 'not_yet'
                ELSE 'ended' END,
           stored.workspace_id, stored.workflow_definition_id, stored.version_id, stored.owner_epoch, stored.input,
           stored.trigger, stored.created_at,
           (extract(epoch FROM stored.deadline_at - clock_timestamp()) * 1000)::bigint, stored.trace_context
      FROM unnest(p_ids) AS asked(id) LEFT JOIN forebay.workflow_execution stored ON stored.id = asked.id;
END $fn$;
