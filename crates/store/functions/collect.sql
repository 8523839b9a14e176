-- Collects the results of a loop's iterations into the output of the loop's own row. The database does this, so that
-- ten thousand outputs need not be transferred. The row stays RUNNING. When a record completes the row later, the
-- collected output stays.
--
-- Fenced by the holder, whose row is locked. Repeatable. If the results are larger than p_most bytes, nothing is
-- written and `large` is true. p_return says which part of the output to return: 'all', 'some' (without the items) or
-- 'none'.
CREATE OR REPLACE FUNCTION forebay_r1.collect_iterations(
    p_holder uuid, p_owner uuid, p_epoch bigint, p_execution uuid, p_node text, p_collect boolean, p_most bigint,
    p_return text)
RETURNS TABLE (held boolean, large boolean, output jsonb)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_output jsonb;
BEGIN
    PERFORM 1 FROM forebay.workflow_execution holder
     WHERE holder.id = p_holder AND holder.owner = p_owner AND holder.owner_epoch = p_epoch
       AND holder.status = 'RUNNING'
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, false, NULL::jsonb;
        RETURN;
    END IF;
    IF (SELECT sum(octet_length(CASE node.status WHEN 'COMPLETED' THEN node.output::text
                                                 WHEN 'FAILED' THEN node.error::text END))
          FROM forebay.workflow_execution_node node
         WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration > 0) > p_most THEN
        RETURN QUERY SELECT true, true, NULL::jsonb;
        RETURN;
    END IF;
    SELECT jsonb_build_object('count', count(*), 'failed', count(*) FILTER (WHERE node.status = 'FAILED'), 'items',
               coalesce(jsonb_agg(CASE WHEN node.status = 'COMPLETED' THEN node.output END ORDER BY node.iteration),
                        '[]'))
           || CASE WHEN p_collect THEN jsonb_build_object('errors', coalesce(
                  jsonb_agg(jsonb_build_object('index', node.iteration - 1, 'error', node.error)
                            ORDER BY node.iteration)
                      FILTER (WHERE node.status = 'FAILED'), '[]')) ELSE '{}' END
      INTO v_output
      FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration > 0;
    UPDATE forebay.workflow_execution_node node SET output = v_output
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration = 0 AND node.status = 'RUNNING';
    RETURN QUERY SELECT true, false, CASE p_return WHEN 'all' THEN v_output WHEN 'some' THEN v_output - 'items' END;
END $fn$;
