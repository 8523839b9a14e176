-- What nodes ask of the world outside: a person, a callback or an event (WAIT), or a worker of the user's own (TASK).

CREATE TABLE workflow_execution_ask (
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL DEFAULT 0,
    -- How a task is named to its workers.
    id uuid NOT NULL UNIQUE,
    workspace_id uuid NOT NULL,
    -- The execution whose run listens; null: nobody asked yet.
    holder uuid,
    kind text NOT NULL CHECK (kind IN ('WAIT', 'TASK')),
    -- Of the node; 0: nobody asked yet.
    attempt int NOT NULL,
    status text NOT NULL CHECK (status IN ('OPEN', 'CLAIMED', 'ANSWERED', 'TAKEN', 'EXPIRED', 'CLOSED')),
    -- WAIT: the event that answers it, from then on, and what must hold of it.
    event_type text,
    match text,
    events_from timestamptz,
    -- Events are looked for once more when every transaction below this one is over; null: such a number is still to be drawn.
    look boolean NOT NULL DEFAULT false,
    look_xid xid8,
    -- TASK: where it is offered, and how long a worker may be silent.
    queue text,
    lease_s float8,
    input jsonb,
    opened_at timestamptz,
    expires_at timestamptz,
    -- Who works on it, and until when unless it is heard of.
    claim_id uuid,
    worker text,
    claim_lease_s float8,
    lease_until timestamptz,
    progress jsonb,
    -- How often it was handed out, and how often that came to nothing, in this attempt.
    deliveries int NOT NULL DEFAULT 0,
    lost int NOT NULL DEFAULT 0,
    -- The claim that ended the attempt before: an end that is told twice is known.
    ended_claim uuid,
    outcome text CHECK (outcome IN ('COMPLETED', 'FAILED')),
    output jsonb,
    error jsonb,
    answered_by text,
    answered_at timestamptz,
    -- The run knows that it was answered, or that its time is up.
    seen_at timestamptz,
    PRIMARY KEY (execution_id, node, iteration),
    CHECK ((holder IS NULL) = (attempt = 0)),
    CHECK ((holder IS NULL) = (opened_at IS NULL)),
    CHECK (holder IS NOT NULL OR (kind = 'WAIT' AND status IN ('ANSWERED', 'CLOSED'))),
    CHECK (attempt = 0 OR (kind = 'TASK') = (queue IS NOT NULL)),
    CHECK (attempt = 0 OR (kind = 'TASK') = (lease_s IS NOT NULL)),
    CHECK ((event_type IS NULL) = (events_from IS NULL) AND (event_type IS NULL OR kind = 'WAIT')),
    CHECK (status <> 'CLAIMED' OR kind = 'TASK'),
    CHECK (CASE status WHEN 'CLAIMED' THEN claim_id IS NOT NULL AND lease_until IS NOT NULL ELSE lease_until IS NULL END),
    CHECK (status <> 'OPEN' OR claim_id IS NULL),
    CHECK ((claim_id IS NULL) = (worker IS NULL)),
    CHECK ((outcome IS NOT NULL) = (answered_at IS NOT NULL) AND (outcome IS NOT NULL) = (answered_by IS NOT NULL)),
    CHECK (status NOT IN ('OPEN', 'CLAIMED', 'EXPIRED') OR outcome IS NULL),
    CHECK (status NOT IN ('ANSWERED', 'TAKEN') OR outcome IS NOT NULL),
    CHECK ((outcome IS NOT DISTINCT FROM 'FAILED') = (error IS NOT NULL)),
    CHECK (status NOT IN ('OPEN', 'CLAIMED', 'ANSWERED') OR seen_at IS NULL),
    CHECK (status <> 'TAKEN' OR seen_at IS NOT NULL),
    CHECK (NOT look OR status = 'OPEN')
) WITH (fillfactor = 70);
-- What came for a run that has not looked yet.
CREATE INDEX workflow_execution_ask_news ON workflow_execution_ask (holder) WHERE seen_at IS NULL AND status IN ('ANSWERED', 'EXPIRED');
CREATE INDEX workflow_execution_ask_open ON workflow_execution_ask (holder, expires_at) WHERE status IN ('OPEN', 'CLAIMED');
CREATE INDEX workflow_execution_ask_expiry ON workflow_execution_ask (expires_at) WHERE status IN ('OPEN', 'CLAIMED') AND expires_at IS NOT NULL;
-- What every event looks at.
CREATE INDEX workflow_execution_ask_event ON workflow_execution_ask (workspace_id, event_type) WHERE status = 'OPEN' AND event_type IS NOT NULL;
CREATE INDEX workflow_execution_ask_look ON workflow_execution_ask (look_xid) WHERE look;
CREATE INDEX workflow_execution_ask_offer ON workflow_execution_ask (queue, workspace_id, opened_at, id) WHERE status = 'OPEN' AND kind = 'TASK';
CREATE INDEX workflow_execution_ask_lease ON workflow_execution_ask (lease_until) WHERE status = 'CLAIMED';
CREATE INDEX workflow_execution_ask_task ON workflow_execution_ask (id) WHERE kind = 'TASK';
CREATE INDEX workflow_execution_ask_task_of ON workflow_execution_ask (workspace_id, id) WHERE kind = 'TASK';

-- Who may answer one wait, once, without a key: the token as a hash.
CREATE TABLE workflow_execution_token (
    hash bytea PRIMARY KEY CHECK (length(hash) = 32),
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL,
    workspace_id uuid NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);
CREATE INDEX workflow_execution_token_of ON workflow_execution_token (execution_id, node, iteration);

-- Events that may be what a wait waits for, until somebody judged them.
CREATE TABLE workflow_execution_candidate (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id uuid NOT NULL,
    -- Null: of every wait for its type, because its writer could not see which there are.
    execution_id uuid,
    node text,
    iteration int,
    CHECK ((execution_id IS NULL) = (node IS NULL) AND (execution_id IS NULL) = (iteration IS NULL))
);
CREATE UNIQUE INDEX workflow_execution_candidate_once ON workflow_execution_candidate (execution_id, node, iteration, event_id);

-- What a wait that opens looks at: what happened before.
CREATE INDEX domain_events_of_type ON domain_events (workspace_id, event_type, created_at) WHERE stream_type <> 'workflow_queue';

-- Own runs that something came for.
CREATE INDEX workflow_execution_called ON workflow_execution (owner) WHERE wake_at IS NOT NULL AND owner IS NOT NULL;

-- Notes an event as a candidate of the open waits for its type. Runs as its owner: who may append events need have no right on waits.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
CREATE FUNCTION fb_event_waited_1() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $fn$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        -- This transaction sees the waits of the moment at which it began: somebody who sees those of now looks for it.
        INSERT INTO workflow_execution_candidate (event_id) VALUES (NEW.id);
    ELSE
        INSERT INTO workflow_execution_candidate (event_id, execution_id, node, iteration)
        SELECT NEW.id, a.execution_id, a.node, a.iteration FROM workflow_execution_ask a
         WHERE a.workspace_id = NEW.workspace_id AND a.event_type = NEW.event_type AND a.status = 'OPEN'
           AND a.events_from <= NEW.created_at;
    END IF;
    -- At most one running transaction rings: NOTIFY takes a lock of the whole cluster at its commit.
    IF FOUND AND pg_try_advisory_xact_lock(724001) THEN
        PERFORM pg_notify('forebay_change', '');
    END IF;
    RETURN NULL;
END $fn$;

CREATE TRIGGER forebay_waited AFTER INSERT ON domain_events
    FOR EACH ROW WHEN (NEW.stream_type <> 'workflow_queue' AND NEW.workspace_id IS NOT NULL) EXECUTE FUNCTION fb_event_waited_1();
