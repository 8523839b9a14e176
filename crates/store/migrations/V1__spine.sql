-- The spine: who may run how much, what they asked for, and how it goes.
-- Statuses are the public contract; CHECKs tie the columns that belong to a status to it.

CREATE TABLE tier (
    name text PRIMARY KEY,
    max_running int NOT NULL CHECK (max_running >= 0)
);
INSERT INTO tier (name, max_running) VALUES ('FREE', 1), ('PRO', 5), ('ENTERPRISE', 20);

CREATE TABLE workspace (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    tier text NOT NULL REFERENCES tier,
    limit_override int CHECK (limit_override >= 0),
    paused boolean NOT NULL DEFAULT false,
    weight smallint NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100),
    max_backlog int CHECK (max_backlog >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at timestamptz,
    shard smallint GENERATED ALWAYS AS (get_byte(uuid_send(id), 15) & 63) STORED
);
CREATE UNIQUE INDEX workspace_living_name ON workspace (name) WHERE deleted_at IS NULL;

CREATE TABLE workflow_definition (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspace,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    status text NOT NULL DEFAULT 'DRAFT' CHECK (status IN ('DRAFT', 'ACTIVE', 'PAUSED')),
    published_version uuid,
    concurrency int CHECK (concurrency >= 0),
    key_concurrency int NOT NULL DEFAULT 1 CHECK (key_concurrency >= 0),
    max_attempts int NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 100),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at timestamptz,
    CHECK (status = 'DRAFT' OR published_version IS NOT NULL)
);
CREATE UNIQUE INDEX workflow_definition_living_name ON workflow_definition (workspace_id, name) WHERE deleted_at IS NULL;

CREATE TABLE workflow_definition_version (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL REFERENCES workflow_definition,
    number int NOT NULL CHECK (number >= 1),
    graph jsonb NOT NULL,
    content_hash text NOT NULL,
    source text,
    timeout_ms bigint CHECK (timeout_ms > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workflow_definition_id, number)
);

-- A request's record. Written at enqueue, ended once, never deleted by the queue.
CREATE TABLE workflow_execution (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    version_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELED', 'TIMED_OUT')),
    semantics int NOT NULL,
    engine text,
    engine_run_id text,
    engine_where text,
    trigger jsonb NOT NULL DEFAULT '{}',
    input jsonb,
    output jsonb,
    error jsonb,
    priority smallint NOT NULL DEFAULT 3,
    concurrency_key text,
    idempotency_key text,
    fingerprint bytea,
    timeout_ms bigint,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    completed_at timestamptz,
    duration_ms bigint,
    deadline_at timestamptz NOT NULL,
    cancel_requested_at timestamptz,
    owner uuid,
    owner_epoch bigint NOT NULL DEFAULT 0,
    last_seq bigint NOT NULL DEFAULT 0,
    wake_at timestamptz,
    deaths int NOT NULL DEFAULT 0,
    deaths_seq bigint,
    alone boolean NOT NULL DEFAULT false,
    parent uuid,
    root uuid,
    rerun_of uuid,
    trace_context text,
    CHECK ((idempotency_key IS NULL) = (fingerprint IS NULL)),
    CHECK (CASE status
        WHEN 'PENDING' THEN started_at IS NULL AND completed_at IS NULL AND owner IS NULL
        WHEN 'RUNNING' THEN started_at IS NOT NULL AND completed_at IS NULL AND engine IS NOT NULL
        ELSE completed_at IS NOT NULL AND owner IS NULL END)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE UNIQUE INDEX workflow_execution_idempotency ON workflow_execution (workspace_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX workflow_execution_deadline ON workflow_execution (deadline_at) WHERE completed_at IS NULL;
CREATE INDEX workflow_execution_wake ON workflow_execution (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX workflow_execution_canceling ON workflow_execution (owner)
    WHERE cancel_requested_at IS NOT NULL AND completed_at IS NULL;

-- A request's ticket: small, hot, and while its stage is 5 it is the slot. No foreign keys: each
-- would lock its target at every insert; the enqueue joins the definition instead.
-- stage: 0 ready, 1 delayed or backing off, 2 waits for its key, 3 waits for its definition,
-- 5 holds a slot, 9 failed. Index predicates name only the stage, so that claimed -> dispatched
-- and takeover are heap-only updates.
CREATE TABLE execution_queue (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    claim_id uuid,
    claimed_by uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    available_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_at timestamptz,
    dispatched_at timestamptz,
    rank bigint NOT NULL,
    attempt_count int NOT NULL DEFAULT 0,
    takeover_count int NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 5),
    stage smallint NOT NULL DEFAULT 0,
    shard smallint GENERATED ALWAYS AS (get_byte(uuid_send(workspace_id), 15) & 63) STORED,
    gated boolean NOT NULL DEFAULT false,
    in_doubt boolean NOT NULL DEFAULT false,
    status text NOT NULL DEFAULT 'PENDING',
    concurrency_key text,
    last_error text,
    CHECK (id = execution_id),
    CHECK (stage <> 2 OR concurrency_key IS NOT NULL),
    CHECK (CASE status
        WHEN 'PENDING' THEN stage IN (0, 1, 2, 3) AND claim_id IS NULL AND claimed_by IS NULL
            AND claimed_at IS NULL AND dispatched_at IS NULL
        WHEN 'CLAIMED' THEN stage = 5 AND claim_id IS NOT NULL AND claimed_by IS NOT NULL
            AND claimed_at IS NOT NULL AND dispatched_at IS NULL
        WHEN 'DISPATCHED' THEN stage = 5 AND claim_id IS NOT NULL AND claimed_by IS NOT NULL
            AND claimed_at IS NOT NULL AND dispatched_at IS NOT NULL
        WHEN 'FAILED' THEN stage = 9 AND last_error IS NOT NULL
        ELSE false END)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX execution_queue_ready ON execution_queue (shard, workspace_id, rank, id) WHERE stage = 0;
CREATE INDEX execution_queue_slot ON execution_queue (shard, workspace_id) WHERE stage = 5;
CREATE INDEX execution_queue_due ON execution_queue (available_at) WHERE stage = 1;
CREATE INDEX execution_queue_key ON execution_queue (shard, workspace_id, workflow_definition_id, concurrency_key, rank, id)
    WHERE stage = 2;
CREATE INDEX execution_queue_definition ON execution_queue (shard, workspace_id, workflow_definition_id, rank, id)
    WHERE stage = 3;
-- What was let through a definition's gate, and through a key's: the latter may wait for the former.
CREATE INDEX execution_queue_gated ON execution_queue (workspace_id, workflow_definition_id)
    WHERE gated AND stage IN (0, 5);
CREATE INDEX execution_queue_keyed ON execution_queue (workspace_id, workflow_definition_id, concurrency_key)
    WHERE concurrency_key IS NOT NULL AND stage IN (0, 3, 5);

-- One source document reads the queue by this name.
CREATE VIEW workflow_execution_queue AS SELECT * FROM execution_queue;

CREATE TABLE workflow_execution_node (
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL DEFAULT 0,
    workspace_id uuid NOT NULL,
    status text NOT NULL
        CHECK (status IN ('PENDING', 'RUNNING', 'RETRYING', 'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')),
    attempt int NOT NULL DEFAULT 0,
    fence int NOT NULL DEFAULT 0,
    seq bigint,
    label text,
    next_at timestamptz,
    input jsonb,
    output jsonb,
    error jsonb,
    earlier jsonb,
    started_at timestamptz,
    completed_at timestamptz,
    duration_ms bigint,
    PRIMARY KEY (execution_id, node, iteration),
    CHECK ((status IN ('PENDING', 'RUNNING', 'RETRYING')) = (completed_at IS NULL)),
    CHECK ((completed_at IS NULL) = (seq IS NULL)),
    CHECK (status <> 'RETRYING' OR next_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

-- Who did what to what, in the same transaction as the deed. Only ever appended to.
CREATE TABLE activity (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    workspace_id uuid,
    actor text NOT NULL,
    action text NOT NULL,
    subject_type text NOT NULL,
    subject_id uuid NOT NULL,
    detail jsonb
);
CREATE INDEX activity_by_workspace ON activity (workspace_id, id);

-- Who is alive. An id is fresh at each start and never used again.
CREATE TABLE process (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    pid int NOT NULL,
    roles text[] NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    -- It fell silent, rather than saying goodbye.
    died boolean NOT NULL DEFAULT false,
    -- It has room, and takes its share of the shards.
    dispatching boolean NOT NULL DEFAULT false
) WITH (fillfactor = 20);

-- Which process looks after which shard: an optimisation, never a fence.
CREATE TABLE shard_owner (
    shard smallint PRIMARY KEY,
    owner uuid,
    until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);
INSERT INTO shard_owner (shard) SELECT generate_series(0, 63);

-- Keys are random 256-bit values, so a fast hash keeps them safe at rest. No workspace: a root key.
CREATE TABLE api_key (
    id uuid PRIMARY KEY,
    workspace_id uuid REFERENCES workspace,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    hash bytea NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz
);
CREATE INDEX api_key_by_workspace ON api_key (workspace_id, id);

-- Whatever changes a limit waits for the claims of its shard, and they for it: a claim commits
-- either before the new limit or having read it. OLD, not NEW: generated columns are null in a
-- BEFORE trigger, and a lock on null locks nothing.
CREATE FUNCTION fb_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'workspace' THEN
        PERFORM pg_advisory_xact_lock(7001, OLD.shard::int);
    ELSIF TG_TABLE_NAME = 'workflow_definition' THEN
        PERFORM pg_advisory_xact_lock(7001, get_byte(uuid_send(OLD.workspace_id), 15) & 63);
    ELSE
        PERFORM pg_advisory_xact_lock(7001, s) FROM generate_series(0, 63) s;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fence BEFORE UPDATE OF tier, limit_override, paused, deleted_at ON workspace
    FOR EACH ROW EXECUTE FUNCTION fb_fence();
CREATE TRIGGER fence BEFORE UPDATE OF status, concurrency, key_concurrency, deleted_at ON workflow_definition
    FOR EACH ROW EXECUTE FUNCTION fb_fence();
CREATE TRIGGER fence BEFORE UPDATE OF max_running ON tier
    FOR EACH ROW EXECUTE FUNCTION fb_fence();
