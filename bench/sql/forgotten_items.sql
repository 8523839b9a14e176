-- A wrong recovery: a run with a new owner does not know the items that its loops have finished.
CREATE OR REPLACE FUNCTION chaos_forget() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE workflow_execution_node n
       SET status = 'RUNNING', seq = NULL, output = NULL, completed_at = NULL, duration_ms = NULL
     WHERE n.execution_id = NEW.id AND n.iteration > 0 AND n.status = 'COMPLETED';
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER chaos_forget AFTER UPDATE OF owner ON workflow_execution
    FOR EACH ROW WHEN (OLD.status = 'RUNNING' AND NEW.status = 'RUNNING'
                       AND NEW.owner IS NOT NULL AND OLD.owner IS DISTINCT FROM NEW.owner)
    EXECUTE FUNCTION chaos_forget();
