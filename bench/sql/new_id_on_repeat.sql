-- A wrong recovery: the executions of a silent process are deleted and created again under new ids.
CREATE OR REPLACE FUNCTION chaos_recover(silent_s float8) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    r record;
    made bigint := 0;
BEGIN
    FOR r IN SELECT e.id, e.workspace_id, e.workflow_definition_id, e.input, e.priority, e.concurrency_key
               FROM execution_queue q
               JOIN workflow_execution e ON e.id = q.id
               JOIN process p ON p.id = coalesce(e.owner, q.claimed_by)
              WHERE q.stage = 5 AND p.ended_at IS NULL
                AND p.heartbeat_at < clock_timestamp() - make_interval(secs => silent_s)
                FOR UPDATE OF e, q SKIP LOCKED
    LOOP
        DELETE FROM execution_queue WHERE id = r.id;
        DELETE FROM workflow_execution_node WHERE execution_id = r.id;
        DELETE FROM workflow_execution WHERE id = r.id;
        PERFORM forebay.enqueue(r.workspace_id, r.workflow_definition_id, r.input, r.priority, NULL, r.concurrency_key);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
