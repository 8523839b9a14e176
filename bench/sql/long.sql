-- What the judge of long-running work wants noted, inside the transactions that it judges: the first and every later
-- completion of a node, and what became of its asks.
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

-- handed: a worker was given it under this claim; answered: it was, under this claim if it was a worker's.
CREATE TABLE chaos_ask (
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
CREATE FUNCTION chaos_ask() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO chaos_ask (what, kind, task, execution, node, iteration, attempt, claim)
    VALUES (CASE WHEN NEW.status = 'CLAIMED' THEN 'handed' ELSE 'answered' END, NEW.kind, NEW.id, NEW.execution_id, NEW.node,
            NEW.iteration, NEW.attempt, NEW.claim_id);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_handed AFTER UPDATE OF claim_id ON workflow_execution_ask
    FOR EACH ROW WHEN (NEW.status = 'CLAIMED' AND NEW.claim_id IS DISTINCT FROM OLD.claim_id) EXECUTE FUNCTION chaos_ask();
CREATE TRIGGER chaos_answered AFTER UPDATE OF answered_at ON workflow_execution_ask
    FOR EACH ROW WHEN (NEW.answered_at IS NOT NULL AND NEW.answered_at IS DISTINCT FROM OLD.answered_at) EXECUTE FUNCTION chaos_ask();
CREATE TRIGGER chaos_answered_early AFTER INSERT ON workflow_execution_ask
    FOR EACH ROW WHEN (NEW.answered_at IS NOT NULL) EXECUTE FUNCTION chaos_ask();
