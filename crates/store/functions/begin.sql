-- The first step of every run: may it perform nodes? The guard is the execution's status and its item's slot. It is not
-- the claim, because another process may have taken over the claim since the run was started. Repeatable. Returns:
--   granted   it was PENDING with a slot, or it is RUNNING for this owner
--   ended     it is terminal, or another run owns it
--   not_yet   it has no slot, or its rules are newer than p_semantics
--   missing   there is no such execution
--
-- A child has no slot of its own: it counts as having a slot while its root is RUNNING. The root's row is locked before
-- the child's.
--
-- p_location: for an external engine (Temporal), the cluster and namespace of the run; null for the embedded engine.
-- For an external engine p_process is the id of the run there, not of one of our processes. Only the first run of an
-- execution may begin: if the engine starts another one, this function returns `ended` to it, and it does nothing.
CREATE OR REPLACE FUNCTION forebay_r1.begin_runs(
    p_ids uuid[], p_engine text, p_location text, p_process uuid, p_semantics int)
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
    PERFORM 1
      FROM forebay.workflow_execution requested
     WHERE requested.id = ANY (p_ids)
     ORDER BY requested.id
     FOR UPDATE;
    -- The items are locked too: if one were requeued at this moment, its run would begin without a slot.
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
           SET status = 'RUNNING', engine = p_engine, engine_location = p_location, owner = p_process,
               engine_run_id = CASE WHEN p_location IS NOT NULL THEN p_process::text END, owner_epoch = owner_epoch + 1,
               started_at = clock_timestamp(),
               deadline_at = least(pending.deadline_at,
                                   clock_timestamp() + make_interval(secs => pending.timeout_ms / 1000.0))
         WHERE pending.id = ANY (v_with_slot) AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
        RETURNING pending.id, pending.workspace_id)
    INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
    SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING'
      FROM begun
     HAVING count(*) > 0;
    -- The item of a run of ours names its owner, even if the item was already dispatched.
    UPDATE forebay.execution_queue queued
       SET status = 'DISPATCHED', dispatched_at = coalesce(queued.dispatched_at, clock_timestamp()),
           owner = CASE WHEN p_location IS NULL THEN p_process END
      FROM forebay.workflow_execution own
     WHERE queued.id = ANY (v_with_slot)
       AND (queued.status = 'CLAIMED'
            OR (queued.status = 'DISPATCHED' AND queued.owner IS NULL AND p_location IS NULL))
       AND own.id = queued.id AND own.status = 'RUNNING' AND own.owner = p_process;
    RETURN QUERY
    SELECT requested.id,
           CASE WHEN stored.id IS NULL THEN 'missing'
                WHEN stored.status = 'RUNNING' AND stored.owner = p_process THEN 'granted'
                WHEN stored.status = 'PENDING' THEN 'not_yet'
                ELSE 'ended' END,
           stored.workspace_id, stored.workflow_definition_id, stored.version_id, stored.owner_epoch, stored.input,
           stored.trigger, stored.created_at,
           (extract(epoch FROM stored.deadline_at - clock_timestamp()) * 1000)::bigint, stored.trace_context
      FROM unnest(p_ids) AS requested(id) LEFT JOIN forebay.workflow_execution stored ON stored.id = requested.id;
END $fn$;
