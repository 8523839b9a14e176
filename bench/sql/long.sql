-- The log for the judge of long-running work, written inside the transactions that it judges: each completion of a
-- node, and each step of its waits.
CREATE TABLE chaos_done (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    execution uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL
);
CREATE FUNCTION chaos_done() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO chaos_done (execution, node, iteration) VALUES (NEW.execution_id, NEW.node, NEW.iteration);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_done AFTER UPDATE OF status ON workflow_execution_node
    FOR EACH ROW WHEN (NEW.status = 'COMPLETED' AND OLD.status <> 'COMPLETED') EXECUTE FUNCTION chaos_done();
CREATE TRIGGER chaos_done_inserted AFTER INSERT ON workflow_execution_node
    FOR EACH ROW WHEN (NEW.status = 'COMPLETED') EXECUTE FUNCTION chaos_done();

-- handed: a worker received it under this claim; answered: it was answered, under this claim if by a worker.
CREATE TABLE chaos_wait (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    what text NOT NULL,
    kind text NOT NULL,
    task uuid NOT NULL,
    execution uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL,
    attempt int NOT NULL,
    claim uuid
);
CREATE FUNCTION chaos_wait() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO chaos_wait (what, kind, task, execution, node, iteration, attempt, claim)
    VALUES (CASE WHEN NEW.status = 'CLAIMED' THEN 'handed' ELSE 'answered' END, NEW.kind, NEW.id, NEW.execution_id,
            NEW.node, NEW.iteration, NEW.attempt, NEW.claim_id);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_handed AFTER UPDATE OF claim_id ON workflow_execution_wait
    FOR EACH ROW WHEN (NEW.status = 'CLAIMED' AND NEW.claim_id IS DISTINCT FROM OLD.claim_id)
    EXECUTE FUNCTION chaos_wait();
CREATE TRIGGER chaos_answered AFTER UPDATE OF answered_at ON workflow_execution_wait
    FOR EACH ROW WHEN (NEW.answered_at IS NOT NULL AND NEW.answered_at IS DISTINCT FROM OLD.answered_at)
    EXECUTE FUNCTION chaos_wait();
CREATE TRIGGER chaos_answered_early AFTER INSERT ON workflow_execution_wait
    FOR EACH ROW WHEN (NEW.answered_at IS NOT NULL) EXECUTE FUNCTION chaos_wait();
