-- Creates the child of a node, or finds the child that exists: one child per attempt at a node, however often the
-- attempt is performed. Returns as `answer`:
--
--   lost       another process owns the holder, or the holder has ended
--   running    the child is open
--   ended      the child has ended
--   too_deep   refused, nothing is stored: the parent is at depth p_max_depth already
--   too_many   refused, nothing is stored: the root has p_max_descendants descendants already
--   missing    there is no child, and p_definition is null (find only)
--
-- The fence is the holder's owner and epoch, as in functions/record.sql. With the embedded engine the holder is the
-- root, whose owner runs the whole tree; with an external engine it is the parent. Rows are locked in this order: the
-- root, then the parent. The root's row counts its descendants.
--
-- unknown: at least one node of the child is UNKNOWN, so nobody knows whether that node took effect.
--
-- p_begins: the holder also runs the child. The child is then RUNNING immediately and has no owner of its own.
-- Otherwise it is PENDING until the engine begins it.
CREATE OR REPLACE FUNCTION forebay_r1.create_child(
    p_holder uuid, p_owner uuid, p_epoch bigint, p_id uuid, p_parent uuid, p_node text, p_iteration int, p_attempt int,
    p_definition uuid, p_version uuid, p_input jsonb, p_trigger jsonb, p_trace text, p_timeout_ms bigint,
    p_engine text, p_begins boolean, p_semantics int, p_max_depth int, p_max_descendants int)
RETURNS TABLE (
    answer text, made boolean, execution uuid, workspace uuid, definition uuid, version uuid, input jsonb,
    trigger jsonb, created timestamptz, deadline_in_ms bigint, inherits boolean, trace text, canceling boolean,
    status text, output jsonb, error jsonb, unknown boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_root record;
    v_parent record;
    v_child record;
    v_now timestamptz;
    v_made boolean := false;
BEGIN
    SELECT root.id, root.descendants INTO v_root FROM forebay.workflow_execution root
     WHERE root.id = (SELECT parent.root FROM forebay.workflow_execution parent WHERE parent.id = p_parent) FOR UPDATE;
    SELECT parent.*
      INTO v_parent
      FROM forebay.workflow_execution parent
     WHERE parent.id = p_parent AND parent.status = 'RUNNING'
     FOR UPDATE;
    IF v_parent.id IS NULL OR NOT p_holder IN (v_parent.id, v_root.id) OR NOT EXISTS (
        SELECT 1 FROM forebay.workflow_execution holder
         WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
           AND holder.status = 'RUNNING') THEN
        RETURN QUERY SELECT 'lost', false, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid, NULL::jsonb, NULL::jsonb,
            NULL::timestamptz, NULL::bigint, false, NULL::text, false, NULL::text, NULL::jsonb, NULL::jsonb, false;
        RETURN;
    END IF;

    SELECT child.* INTO v_child FROM forebay.workflow_execution child
     WHERE child.parent = p_parent AND child.parent_node = p_node AND child.parent_iteration = p_iteration
       AND child.parent_attempt = p_attempt;
    IF v_child.id IS NULL THEN
        IF p_definition IS NULL OR v_parent.depth >= p_max_depth OR v_root.descendants >= p_max_descendants THEN
            RETURN QUERY SELECT CASE WHEN p_definition IS NULL THEN 'missing'
                                     WHEN v_parent.depth >= p_max_depth THEN 'too_deep'
                                     ELSE 'too_many' END,
                false, NULL::uuid, NULL::uuid, NULL::uuid, NULL::uuid, NULL::jsonb, NULL::jsonb,
                NULL::timestamptz, NULL::bigint, false, NULL::text, false, NULL::text, NULL::jsonb, NULL::jsonb, false;
            RETURN;
        END IF;
        v_now := clock_timestamp();
        v_made := true;
        INSERT INTO forebay.workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics,
            engine, trigger, input, priority, timeout_ms, created_at, started_at, deadline_at, parent, root,
            parent_node, parent_iteration, parent_attempt, depth, trace_context)
        SELECT p_id, v_parent.workspace_id, p_definition, p_version,
               CASE WHEN p_begins THEN 'RUNNING' ELSE 'PENDING' END, p_semantics, CASE WHEN p_begins THEN p_engine END,
               p_trigger, p_input, v_parent.priority, p_timeout_ms, v_now, CASE WHEN p_begins THEN v_now END,
               least(v_parent.deadline_at, v_now + make_interval(secs => p_timeout_ms / 1000.0)),
               v_parent.id, v_root.id, p_node, p_iteration, p_attempt, v_parent.depth + 1, p_trace;
        UPDATE forebay.workflow_execution root SET descendants = root.descendants + 1 WHERE root.id = v_root.id;
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        VALUES ('execution', 'INSERT', ARRAY[p_id], ARRAY[v_parent.workspace_id],
                CASE WHEN p_begins THEN 'RUNNING' ELSE 'PENDING' END);
        SELECT child.* INTO v_child FROM forebay.workflow_execution child WHERE child.id = p_id;
    END IF;
    RETURN QUERY
    SELECT CASE WHEN v_child.status IN ('PENDING', 'RUNNING') THEN 'running' ELSE 'ended' END, v_made, v_child.id,
           v_child.workspace_id, v_child.workflow_definition_id, v_child.version_id, v_child.input, v_child.trigger,
           v_child.created_at, (extract(epoch FROM v_child.deadline_at - clock_timestamp()) * 1000)::bigint,
           v_child.deadline_at >= v_parent.deadline_at, v_child.trace_context, v_child.cancel_requested_at IS NOT NULL,
           v_child.status, v_child.output, v_child.error,
           v_child.status IN ('FAILED', 'CANCELED', 'TIMED_OUT') AND forebay_r1.is_unknown(v_child.id);
END $fn$;
