-- Events and waits meet in pages, judged by workspaces in turn: neither whoever appends an event nor whoever waits for one pays for how
-- many there are of the other.

DROP FUNCTION IF EXISTS fb_candidates_placed_1(int), fb_events_noted_1(workflow_execution_ask);
DROP TABLE workflow_execution_candidate;

-- What is still to be judged.
CREATE TABLE workflow_execution_candidate (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    -- An event, for the open waits for its type, by their ids: those up to after_wait are done.
    event_id uuid,
    after_wait uuid,
    -- Or a wait, for the events of its type since its execution was made, in their order: those up to after_at, after_sequence are done.
    execution_id uuid,
    node text,
    iteration int,
    after_at timestamptz,
    after_sequence bigint,
    -- Who judges a page of it, and until when unless it is done; how far it is then, and whether there is more.
    taken_by uuid,
    taken_until timestamptz,
    next_wait uuid,
    next_at timestamptz,
    next_sequence bigint,
    more boolean NOT NULL DEFAULT false,
    CHECK ((event_id IS NULL) <> (execution_id IS NULL)),
    CHECK ((execution_id IS NULL) = (node IS NULL) AND (execution_id IS NULL) = (iteration IS NULL)),
    CHECK ((execution_id IS NULL) = (after_at IS NULL) AND (execution_id IS NULL) = (after_sequence IS NULL)),
    CHECK ((taken_by IS NULL) = (taken_until IS NULL))
);
CREATE INDEX workflow_execution_candidate_turn ON workflow_execution_candidate (workspace_id, id);
CREATE INDEX workflow_execution_candidate_taken ON workflow_execution_candidate (taken_by) WHERE taken_by IS NOT NULL;
CREATE INDEX workflow_execution_candidate_of ON workflow_execution_candidate (execution_id) WHERE execution_id IS NOT NULL;

-- Every wait that is open looks at its events anew.
INSERT INTO workflow_execution_candidate (workspace_id, execution_id, node, iteration, after_at, after_sequence)
SELECT a.workspace_id, a.execution_id, a.node, a.iteration, a.events_from, 0 FROM workflow_execution_ask a
 WHERE a.status = 'OPEN' AND a.event_type IS NOT NULL ORDER BY a.id;

-- The pages: waits by id, events in their order.
DROP INDEX workflow_execution_ask_event;
CREATE INDEX workflow_execution_ask_event ON workflow_execution_ask (workspace_id, event_type, id) WHERE status = 'OPEN' AND event_type IS NOT NULL;
DROP INDEX domain_events_of_type;
CREATE INDEX domain_events_of_type ON domain_events (workspace_id, event_type, created_at, sequence) WHERE stream_type <> 'workflow_queue';

-- Notes an event that somebody may wait for: one row, however many do. Runs as its owner: who may append events need have no right
-- on waits.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
CREATE OR REPLACE FUNCTION fb_event_waited_1() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off
AS $fn$
BEGIN
    -- Whoever sees the waits of the moment at which its transaction began cannot tell: the event is noted, and judged for those of then.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') OR EXISTS (
        SELECT 1 FROM workflow_execution_ask a
         WHERE a.workspace_id = NEW.workspace_id AND a.event_type = NEW.event_type AND a.status = 'OPEN') THEN
        INSERT INTO workflow_execution_candidate (workspace_id, event_id) VALUES (NEW.workspace_id, NEW.id);
        -- At most one running transaction rings: NOTIFY takes a lock of the whole cluster at its commit.
        IF pg_try_advisory_xact_lock(724001) THEN
            PERFORM pg_notify('forebay_change', '');
        END IF;
    END IF;
    RETURN NULL;
END $fn$;
