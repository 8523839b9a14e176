-- Gathers what the iterations of a loop came to into the output of the loop's own row, where they are: ten thousand
-- outputs need not travel to be put together. The row stays RUNNING; the record that completes it keeps what stands
-- there.
--
-- Fenced by the holder, whose row is locked, and repeatable. Nothing is written if it is more than p_most bytes.
-- p_looks says what of it the caller wants to see: 'all', 'some' (without the items) or 'none'.
CREATE OR REPLACE FUNCTION forebay_r1.gather_iterations(
    p_holder uuid, p_owner uuid, p_epoch bigint, p_execution uuid, p_node text, p_collect boolean, p_most bigint,
    p_looks text)
RETURNS TABLE (held boolean, large boolean, output jsonb)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    made jsonb;
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
      INTO made
      FROM forebay.workflow_execution_node node
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration > 0;
    UPDATE forebay.workflow_execution_node node SET output = made
     WHERE node.execution_id = p_execution AND node.node = p_node AND node.iteration = 0 AND node.status = 'RUNNING';
    RETURN QUERY SELECT true, false, CASE p_looks WHEN 'all' THEN made WHEN 'some' THEN made - 'items' END;
END $fn$;
