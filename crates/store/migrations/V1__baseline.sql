-- The tables of Forebay, by feature. `docs/lifecycle.md` draws the statuses; `functions/` has what moves them.
--
-- Schemas
--   forebay   everything that exists once: tables, trigger functions, and the functions that other programs call.
--   public    what other programs read and write by the names that their documents use: domain_events,
--             workflow_queue_projection, shedlock, and the view workflow_execution_queue.
--   forebay_rN  the functions of release N, which only its own processes call. Nothing here refers to them.
--
-- Conventions
--   Every name is written with its schema: nothing depends on search_path.
--   Statuses are the public contract. CHECKs tie the columns that belong to a status to it.
--   Every table of a tenant has workspace_id, and so has every unique key that a tenant can choose a value for.
--   clock_timestamp() is the only clock.

-- A role that is granted a function or a table here needs no right on the schema as well.
GRANT USAGE ON SCHEMA forebay TO PUBLIC;

-- Workspaces fall into 64 shards by the last byte of their id (kernel::ids::WorkspaceId::shard). A claim locks shards.
CREATE FUNCTION forebay.shard_of(p_workspace uuid) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $fn$ SELECT get_byte(uuid_send(p_workspace), 15) & 63 $fn$;

-- ── Workspaces: who may run how much ────────────────────────────────────────────────────────────────────────────────

CREATE TABLE forebay.tier (
    name text PRIMARY KEY,
    max_running int NOT NULL CHECK (max_running >= 0),
    -- How many executions may wait in a workspace, unless the workspace or the settings say otherwise. Null: any
    -- number.
    max_backlog int CHECK (max_backlog >= 0)
);
INSERT INTO forebay.tier (name, max_running, max_backlog)
VALUES ('FREE', 1, 10000), ('PRO', 5, 100000), ('ENTERPRISE', 20, 1000000);

CREATE TABLE forebay.workspace (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    tier text NOT NULL REFERENCES forebay.tier,
    limit_override int CHECK (limit_override >= 0),
    paused boolean NOT NULL DEFAULT false,
    weight smallint NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100),
    max_backlog int CHECK (max_backlog >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at timestamptz,
    shard smallint GENERATED ALWAYS AS (forebay.shard_of(id)) STORED,
    -- Hosts that it may call although they are not public, and hosts that it may not call, as outbound.allow names
    -- them.
    outbound_allow text[] NOT NULL DEFAULT '{}',
    outbound_deny text[] NOT NULL DEFAULT '{}',
    CONSTRAINT workspace_outbound_check CHECK (cardinality(outbound_allow) <= 100 AND cardinality(outbound_deny) <= 100)
);
CREATE UNIQUE INDEX workspace_living_name ON forebay.workspace (name) WHERE deleted_at IS NULL;

-- ── Definitions ─────────────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE forebay.workflow_definition (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    status text NOT NULL DEFAULT 'DRAFT' CHECK (status IN ('DRAFT', 'ACTIVE', 'PAUSED')),
    published_version uuid,
    concurrency int CHECK (concurrency >= 0),
    key_concurrency int NOT NULL DEFAULT 1 CHECK (key_concurrency >= 0),
    max_attempts int NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 100),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at timestamptz,
    -- After a deletion: its ready items no longer stand in the way of their workspace's others.
    cleared_at timestamptz,
    CHECK (status = 'DRAFT' OR published_version IS NOT NULL)
);
CREATE UNIQUE INDEX workflow_definition_living_name ON forebay.workflow_definition (workspace_id, name)
    WHERE deleted_at IS NULL;
CREATE INDEX workflow_definition_clearing ON forebay.workflow_definition (workspace_id)
    WHERE deleted_at IS NOT NULL AND cleared_at IS NULL;

-- One immutable graph of a definition.
CREATE TABLE forebay.workflow_definition_version (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL REFERENCES forebay.workflow_definition,
    number int NOT NULL CHECK (number >= 1),
    graph jsonb NOT NULL,
    content_hash text NOT NULL,
    source text,
    timeout_ms bigint CHECK (timeout_ms > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workflow_definition_id, number)
);

-- ── Executions ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- The record of a request. Written by enqueue, ended once, deleted by retention alone.
CREATE TABLE forebay.workflow_execution (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    version_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELED', 'TIMED_OUT')),
    -- The rules that it runs by (kernel::SEMANTICS when it was accepted).
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
    -- Set together with the epoch that fences the owner out: whoever owns the run next ends it instead of going on.
    terminate_requested_at timestamptz,
    -- The fence of every fact: the process that runs it, and how often that changed.
    owner uuid,
    owner_epoch bigint NOT NULL DEFAULT 0,
    -- How many nodes have settled.
    last_seq bigint NOT NULL DEFAULT 0,
    wake_at timestamptz,
    -- How often its process died without progress since deaths_seq; from the third time it runs alone.
    deaths int NOT NULL DEFAULT 0,
    deaths_seq bigint,
    alone boolean NOT NULL DEFAULT false,
    -- A child is a row of its own in its root's slot: made by an attempt at a node of its parent. A root has depth 0
    -- and counts its descendants and what they settled.
    parent uuid,
    root uuid,
    parent_node text,
    parent_iteration int,
    parent_attempt int,
    depth smallint NOT NULL DEFAULT 0,
    descendants int NOT NULL DEFAULT 0,
    tree_seq bigint NOT NULL DEFAULT 0,
    rerun_of uuid,
    trace_context text,
    CHECK ((idempotency_key IS NULL) = (fingerprint IS NULL)),
    CHECK (CASE status
        WHEN 'PENDING' THEN started_at IS NULL AND completed_at IS NULL AND owner IS NULL
        WHEN 'RUNNING' THEN started_at IS NOT NULL AND completed_at IS NULL AND engine IS NOT NULL
        ELSE completed_at IS NOT NULL AND owner IS NULL END),
    CONSTRAINT workflow_execution_parent CHECK (
        (parent IS NULL) = (parent_node IS NULL) AND (parent IS NULL) = (parent_iteration IS NULL)
        AND (parent IS NULL) = (parent_attempt IS NULL) AND (parent IS NULL) = (depth = 0))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE UNIQUE INDEX workflow_execution_idempotency ON forebay.workflow_execution (workspace_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- Runs by their owner, for whoever resumes the runs of a dead process. A parked run has none: what waits is not in it.
CREATE INDEX workflow_execution_owned ON forebay.workflow_execution (engine, owner) WHERE owner IS NOT NULL;
-- Deadlines that no owner keeps.
CREATE INDEX workflow_execution_deadline ON forebay.workflow_execution (deadline_at)
    WHERE completed_at IS NULL AND owner IS NULL AND parent IS NULL;
CREATE INDEX workflow_execution_wake ON forebay.workflow_execution (wake_at) WHERE wake_at IS NOT NULL;
-- Own runs that something came for, or that somebody wants to end.
CREATE INDEX workflow_execution_called ON forebay.workflow_execution (owner) WHERE wake_at IS NOT NULL AND owner IS NOT NULL;
CREATE INDEX workflow_execution_canceling ON forebay.workflow_execution (owner)
    WHERE cancel_requested_at IS NOT NULL AND completed_at IS NULL;
-- One child for each attempt at a node, however often it is performed.
CREATE UNIQUE INDEX workflow_execution_child
    ON forebay.workflow_execution (parent, parent_node, parent_iteration, parent_attempt) WHERE parent IS NOT NULL;
-- What ends with its parent, and what is deleted with its root.
CREATE INDEX workflow_execution_open_child ON forebay.workflow_execution (parent)
    WHERE parent IS NOT NULL AND completed_at IS NULL;
CREATE INDEX workflow_execution_root ON forebay.workflow_execution (root) WHERE root IS NOT NULL;
-- Lists, newest first: of a workspace, of a definition, of all. The status comes before the time, so that a rare status
-- is found among many rows; a list of every status is one short walk each.
-- COLLATE "C" keeps them for the lists, which ask for it. A guard that names a status beside an id must probe the
-- primary key: with statistics of a quiet moment the planner walked every entry of that status instead.
-- Lists are of roots: depth < 1. (Not `parent IS NULL`: without statistics the planner takes that for next to nothing.)
CREATE INDEX workflow_execution_of_workspace
    ON forebay.workflow_execution (workspace_id, status COLLATE "C", created_at, id) WHERE depth < 1;
CREATE INDEX workflow_execution_of_definition
    ON forebay.workflow_execution (workflow_definition_id, status COLLATE "C", created_at, id) WHERE depth < 1;
CREATE INDEX workflow_execution_of_all ON forebay.workflow_execution (status COLLATE "C", created_at, id) WHERE depth < 1;

-- A node of an execution, and each iteration of a loop (from 1; 0 is the node itself).
CREATE TABLE forebay.workflow_execution_node (
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL DEFAULT 0,
    workspace_id uuid NOT NULL,
    status text NOT NULL
        CHECK (status IN ('PENDING', 'RUNNING', 'RETRYING', 'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')),
    attempt int NOT NULL DEFAULT 0,
    -- Raised by each taking (functions/node.sql): a slow attempt that was overtaken changes nothing.
    fence int NOT NULL DEFAULT 0,
    -- Its place in the order in which nodes settled.
    seq bigint,
    label text,
    next_at timestamptz,
    input jsonb,
    output jsonb,
    error jsonb,
    -- Its last failed attempts.
    earlier jsonb,
    started_at timestamptz,
    completed_at timestamptz,
    duration_ms bigint,
    -- The execution that this end was taken over from, if it was.
    kept_from uuid,
    -- It may be performed at most once: if its execution is ended by force, nobody knows whether a call took effect.
    once boolean NOT NULL DEFAULT false,
    PRIMARY KEY (execution_id, node, iteration),
    CHECK ((status IN ('PENDING', 'RUNNING', 'RETRYING')) = (completed_at IS NULL)),
    CHECK ((completed_at IS NULL) = (seq IS NULL)),
    CHECK (status <> 'RETRYING' OR next_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

-- Deleted executions of which something is left: too much for the commit that deleted them. Nearly always empty.
CREATE TABLE forebay.retired_execution (
    id uuid PRIMARY KEY
);

-- ── The queue ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- A request in its turn: small and hot, and one of its workspace's slots while its stage is 5. No foreign keys: each
-- would lock its target at every insert; enqueue joins the definition instead.
--
-- stage  forebay.…                      what it says
--   0    stage_ready()                  may be claimed in its turn
--   1    stage_delayed()                not before available_at: delayed, or backing off
--   2    stage_waits_for_key()          its concurrency key has no room
--   3    stage_waits_for_definition()   its definition has no room, or is paused
--   5    stage_slot()                   claimed or dispatched: it holds a slot
--   9    stage_failed()                 a dead letter
--
-- Index predicates name only the stage, so that claimed -> dispatched and takeover are heap-only updates.
CREATE TABLE forebay.execution_queue (
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
    -- Its place in the line: when it came, in ms, less what its priority is worth.
    rank bigint NOT NULL,
    attempt_count int NOT NULL DEFAULT 0,
    takeover_count int NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 5),
    stage smallint NOT NULL DEFAULT 0,
    shard smallint GENERATED ALWAYS AS (forebay.shard_of(workspace_id)) STORED,
    -- It is counted by a limit of its definition or key, and was let through it unless it still waits for it.
    gated boolean NOT NULL DEFAULT false,
    -- Its start may have reached the engine: it keeps its slot until that is known.
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
-- The two that a claim reads: who is next, and how many slots are taken.
CREATE INDEX execution_queue_ready ON forebay.execution_queue (shard, workspace_id, rank, id) WHERE stage = 0;
CREATE INDEX execution_queue_slot ON forebay.execution_queue (shard, workspace_id) WHERE stage = 5;
-- Slots in the order in which the reconciler goes through them; claims that are not yet a run.
CREATE INDEX execution_queue_slot_in_order ON forebay.execution_queue (id) WHERE stage = 5;
CREATE INDEX execution_queue_claimed ON forebay.execution_queue (shard, id) WHERE status = 'CLAIMED';
-- Delays that are over; and delayed items of a workspace or definition, when that is deleted or its backlog counted.
CREATE INDEX execution_queue_due ON forebay.execution_queue (available_at) WHERE stage = 1;
CREATE INDEX execution_queue_delayed ON forebay.execution_queue (shard, workspace_id, workflow_definition_id) WHERE stage = 1;
-- What waits for a key, or for a definition.
CREATE INDEX execution_queue_key
    ON forebay.execution_queue (shard, workspace_id, workflow_definition_id, concurrency_key, rank, id) WHERE stage = 2;
CREATE INDEX execution_queue_definition
    ON forebay.execution_queue (shard, workspace_id, workflow_definition_id, rank, id) WHERE stage = 3;
-- What a definition's limit let through, and what a key's did: the latter may still wait for the former.
CREATE INDEX execution_queue_gated ON forebay.execution_queue (workspace_id, workflow_definition_id)
    WHERE gated AND stage IN (0, 5);
CREATE INDEX execution_queue_keyed ON forebay.execution_queue (workspace_id, workflow_definition_id, concurrency_key)
    WHERE concurrency_key IS NOT NULL AND stage IN (0, 3, 5);
-- Dead letters: of all, of a workspace, of a definition.
CREATE INDEX execution_queue_letter ON forebay.execution_queue (id) WHERE stage = 9;
CREATE INDEX execution_queue_letter_by_workspace ON forebay.execution_queue (workspace_id, id) WHERE stage = 9;
CREATE INDEX execution_queue_letter_by_definition ON forebay.execution_queue (workflow_definition_id, id) WHERE stage = 9;

-- One source document reads the queue by this name.
CREATE VIEW public.workflow_execution_queue AS SELECT * FROM forebay.execution_queue;

-- What was counted of a backlog, and how many starts of limited workspaces had arrived by then. A hint for enqueue
-- (functions/shared/backlog.sql): a row that is missing or old costs a count.
CREATE TABLE forebay.backlog (
    workspace_id uuid PRIMARY KEY,
    counted int NOT NULL DEFAULT 0 CHECK (counted >= 0),
    arrivals bigint NOT NULL DEFAULT 0,
    counted_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);
-- Outside of transactions, so that nobody waits for anybody to count an arrival.
CREATE SEQUENCE forebay.backlog_arrivals;

-- ── Processes ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- The releases whose functions are in place, each in its schema forebay_r<number>. They are dropped a day after the
-- last sign of a process that uses them (functions/release.sql).
CREATE TABLE forebay.release (
    number int PRIMARY KEY,
    -- When its functions were put in place last.
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Digests of what it put in place: its own functions, and those of this schema. The newest release's are in place,
    -- and a process that finds its own digests changes nothing.
    functions text NOT NULL DEFAULT '',
    shared_functions text NOT NULL DEFAULT ''
);

-- The number of the claim's rules: locks, stages, and what is counted; one row. A claim that brings another number is
-- refused, because two claims with different rules beside each other would break the limits. A release that changes the
-- rules raises it when no process of an older one lives.
CREATE TABLE forebay.protocol (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    number int NOT NULL
);
INSERT INTO forebay.protocol (number) VALUES (1);

-- Who is alive. An id is fresh at each start and never used again.
CREATE TABLE forebay.process (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    pid int NOT NULL,
    roles text[] NOT NULL,
    version text NOT NULL,
    -- Whose functions it calls.
    release int NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    -- It fell silent, rather than saying goodbye.
    died boolean NOT NULL DEFAULT false,
    -- It takes its share of the shards, whether or not it has room.
    dispatching boolean NOT NULL DEFAULT false,
    -- It has room for new work, and claims for full owners as well.
    has_room boolean NOT NULL DEFAULT false,
    -- Runs of dead processes in its shards that it has no room for.
    waiting_runs int NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

-- Which process looks after which shard: an optimisation, never a fence.
CREATE TABLE forebay.shard_owner (
    shard smallint PRIMARY KEY,
    owner uuid,
    until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);
INSERT INTO forebay.shard_owner (shard) SELECT generate_series(0, 63);

-- Leases. The layout of the ShedLock library, exactly, because other programs use the same table. One that is there
-- already is used as it is (`migrate` has checked it) and never altered. Times are UTC.
CREATE TABLE IF NOT EXISTS public.shedlock (
    name varchar(64) NOT NULL PRIMARY KEY,
    lock_until timestamp NOT NULL,
    locked_at timestamp NOT NULL,
    locked_by varchar(255) NOT NULL
);

-- ── Events and jobs ─────────────────────────────────────────────────────────────────────────────────────────────────

-- Appended by the API, by EMIT_EVENT, and by plain SQL from any program; never changed, but for how its handling went.
CREATE TABLE public.domain_events (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    sequence bigint GENERATED ALWAYS AS IDENTITY,
    -- Null: no workspace's, or of one that does not exist yet.
    workspace_id uuid,
    stream_id uuid NOT NULL,
    stream_type text NOT NULL,
    stream_version int NOT NULL CHECK (stream_version >= 1),
    event_type text NOT NULL,
    event_data jsonb NOT NULL,
    event_metadata jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    processing_error text,
    processing_failed_at timestamptz,
    -- Whether a binding held for it when it was appended; null: a fact of the queue's own.
    bound boolean,
    PRIMARY KEY (sequence),
    -- Whatever a client can choose is a key only beside its workspace. The id comes first: a root key asks for an id
    -- alone.
    CONSTRAINT domain_events_id UNIQUE NULLS NOT DISTINCT (id, workspace_id),
    CONSTRAINT domain_events_stream UNIQUE NULLS NOT DISTINCT (stream_id, stream_type, workspace_id, stream_version),
    CHECK ((processing_error IS NULL) = (processing_failed_at IS NULL))
);
CREATE INDEX domain_events_by_type ON public.domain_events (event_type, sequence);
CREATE INDEX domain_events_by_workspace ON public.domain_events (workspace_id, sequence);
CREATE INDEX domain_events_of_workspace_type ON public.domain_events (workspace_id, event_type, sequence);
-- What a wait that opens looks at: what happened before.
CREATE INDEX domain_events_of_type ON public.domain_events (workspace_id, event_type, created_at, sequence)
    WHERE stream_type <> 'workflow_queue';
-- Events whose handling failed; and those whose stored error is transient, which a loop folds again: the one that was
-- tried longest ago comes first.
CREATE INDEX domain_events_trouble ON public.domain_events (sequence) WHERE processing_error IS NOT NULL;
CREATE INDEX domain_events_trouble_of_workspace ON public.domain_events (workspace_id, sequence)
    WHERE processing_error IS NOT NULL;
CREATE INDEX domain_events_to_fold ON public.domain_events (processing_failed_at)
    WHERE left(processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58']);

-- What makes derived event ids unpredictable; one row.
CREATE TABLE forebay.event_secret (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea NOT NULL CHECK (octet_length(secret) = 32)
);
INSERT INTO forebay.event_secret (secret) VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- Which events make a job, and what runs it: a definition, or nothing of ours (external workers only).
CREATE TABLE forebay.event_binding (
    id uuid PRIMARY KEY,
    -- Null: for the whole platform.
    workspace_id uuid REFERENCES forebay.workspace,
    -- Exact, or a prefix: order.*
    event_type text NOT NULL CHECK (length(event_type) BETWEEN 1 AND 200),
    workflow_definition_id uuid REFERENCES forebay.workflow_definition,
    -- Made by that definition's `on: event`, and replaced when it is published again.
    by_definition boolean NOT NULL DEFAULT false,
    filter text,
    input jsonb,
    workflow_id text,
    lease_s int NOT NULL DEFAULT 900 CHECK (lease_s BETWEEN 1 AND 604800),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Jobs are taken by turns of their bindings; one whose workspace is full has none until then.
    full_until timestamptz,
    CHECK (NOT by_definition OR workflow_definition_id IS NOT NULL),
    -- Without a definition nothing of ours looks at these.
    CHECK (workflow_definition_id IS NOT NULL OR (filter IS NULL AND input IS NULL AND workflow_id IS NULL))
);
CREATE UNIQUE INDEX event_binding_type ON forebay.event_binding (event_type, workspace_id) NULLS NOT DISTINCT;
CREATE INDEX event_binding_of_definition ON forebay.event_binding (workflow_definition_id)
    WHERE workflow_definition_id IS NOT NULL;
CREATE INDEX event_binding_of_workspace ON forebay.event_binding (workspace_id, id);

-- The job queue as its users know it: these columns, types and defaults are their contract. What is ours beside it
-- lives in forebay.workflow_queue_job.
CREATE TABLE public.workflow_queue_projection (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    event_id uuid NOT NULL,
    event_type text NOT NULL,
    event_data jsonb NOT NULL,
    stream_id uuid NOT NULL,
    stream_type text NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    worker_id text,
    claimed_at timestamptz,
    workflow_id text,
    workflow_run_id text,
    completed_at timestamptz,
    failed_at timestamptz,
    error_message text,
    error_stack text,
    retry_count integer NOT NULL DEFAULT 0,
    result jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id),
    CHECK (status = ANY (ARRAY['pending', 'processing', 'completed', 'failed']))
);
CREATE INDEX workflow_queue_projection_status ON public.workflow_queue_projection (status, created_at);
CREATE INDEX workflow_queue_projection_stream ON public.workflow_queue_projection (stream_id, created_at);
CREATE INDEX workflow_queue_projection_created ON public.workflow_queue_projection (created_at);
CREATE INDEX workflow_queue_projection_event ON public.workflow_queue_projection (event_id);

-- Beside each row of the projection, kept by its triggers.
CREATE TABLE forebay.workflow_queue_job (
    id uuid PRIMARY KEY,
    -- Its event, which is known by its id and its workspace (null: none). The projection has no workspace.
    event_id uuid,
    event_workspace_id uuid,
    event_type text COLLATE "C",
    -- That workspace, if it exists; null: the platform's.
    workspace_id uuid,
    binding_id uuid,
    -- How many facts its stream has.
    version int NOT NULL,
    -- Of the binding, when the event came.
    lease_s int NOT NULL DEFAULT 900,
    -- Waits, since then.
    pending_since timestamptz,
    -- Waits, and our own worker takes it from then on.
    due_at timestamptz,
    -- Is being worked on: by whom (sql, api, ours), under which claim, until when unless it is heard of. An ended one
    -- keeps the claim, so that an end that is told twice is known.
    held text CHECK (held IN ('sql', 'api', 'ours')),
    claim_id uuid,
    lease_until timestamptz,
    -- What the API's claim asked for: a heartbeat that says nothing else repeats it.
    claim_lease_s int,
    -- Failed then, and is to be retried.
    retry_from timestamptz,
    CHECK (held IS DISTINCT FROM 'sql' OR claim_id IS NULL),
    CHECK (pending_since IS NULL OR (held IS NULL AND claim_id IS NULL AND retry_from IS NULL))
) WITH (fillfactor = 70);
-- One job for an event.
CREATE UNIQUE INDEX workflow_queue_job_event ON forebay.workflow_queue_job (event_id, event_workspace_id)
    NULLS NOT DISTINCT WHERE event_id IS NOT NULL;
-- Pending jobs, oldest first: of all, of a workspace, of a type (a worker of one type does not pass the others' jobs),
-- of a binding.
CREATE INDEX workflow_queue_job_pending ON forebay.workflow_queue_job (pending_since, id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_pending_of ON forebay.workflow_queue_job (workspace_id, pending_since, id)
    WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_type ON forebay.workflow_queue_job (event_type, pending_since, id)
    WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_workspace_type
    ON forebay.workflow_queue_job (workspace_id, event_type, pending_since, id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_binding ON forebay.workflow_queue_job (binding_id, due_at, id)
    WHERE pending_since IS NOT NULL;
-- Jobs that are held: by lease, by our own worker, by claim; and those that are to be retried.
CREATE INDEX workflow_queue_job_lease ON forebay.workflow_queue_job (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX workflow_queue_job_ours ON forebay.workflow_queue_job (id) WHERE held = 'ours';
CREATE INDEX workflow_queue_job_claim ON forebay.workflow_queue_job (claim_id) WHERE claim_id IS NOT NULL;
CREATE INDEX workflow_queue_job_retry ON forebay.workflow_queue_job (retry_from) WHERE retry_from IS NOT NULL;
-- What a workspace that reads its jobs begins with, so that it pays for its own and not for everybody's.
CREATE INDEX workflow_queue_job_of_workspace ON forebay.workflow_queue_job (workspace_id, id);

-- ── Waits and tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

-- What nodes ask of the world outside: a person, a callback or an event (WAIT), or a worker of the user's own (TASK).
CREATE TABLE forebay.workflow_execution_ask (
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
    -- Events are looked for once more when every transaction below this one is over; null: such a number is still to be
    -- drawn.
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
-- What came for a run that has not looked yet, and what it still waits for.
CREATE INDEX workflow_execution_ask_news ON forebay.workflow_execution_ask (holder)
    WHERE seen_at IS NULL AND status IN ('ANSWERED', 'EXPIRED');
CREATE INDEX workflow_execution_ask_open ON forebay.workflow_execution_ask (holder, expires_at)
    WHERE status IN ('OPEN', 'CLAIMED');
-- What the loops look for: time that is up, workers that are silent, second looks at events.
CREATE INDEX workflow_execution_ask_expiry ON forebay.workflow_execution_ask (expires_at)
    WHERE status IN ('OPEN', 'CLAIMED') AND expires_at IS NOT NULL;
CREATE INDEX workflow_execution_ask_lease ON forebay.workflow_execution_ask (lease_until) WHERE status = 'CLAIMED';
CREATE INDEX workflow_execution_ask_look ON forebay.workflow_execution_ask (look_xid) WHERE look;
-- The waits that every event looks at, in pages by their ids.
CREATE INDEX workflow_execution_ask_event ON forebay.workflow_execution_ask (workspace_id, event_type, id)
    WHERE status = 'OPEN' AND event_type IS NOT NULL;
-- Tasks: as they are offered, one by its id, those of a workspace.
CREATE INDEX workflow_execution_ask_offer ON forebay.workflow_execution_ask (queue, workspace_id, opened_at, id)
    WHERE status = 'OPEN' AND kind = 'TASK';
CREATE INDEX workflow_execution_ask_task ON forebay.workflow_execution_ask (id) WHERE kind = 'TASK';
CREATE INDEX workflow_execution_ask_task_of ON forebay.workflow_execution_ask (workspace_id, id) WHERE kind = 'TASK';

-- Who may answer one wait, once, without a key: the token as a hash.
CREATE TABLE forebay.workflow_execution_token (
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
CREATE INDEX workflow_execution_token_of ON forebay.workflow_execution_token (execution_id, node, iteration);

-- Events and waits that are still to be judged, in pages, by workspaces in turn: neither whoever appends an event nor
-- whoever waits for one pays for how many there are of the other.
CREATE TABLE forebay.workflow_execution_candidate (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    -- An event, for the open waits for its type, by their ids: those up to after_wait are done.
    event_id uuid,
    after_wait uuid,
    -- Or a wait, for the events of its type since its execution was made, in their order: those up to after_at,
    -- after_sequence are done.
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
CREATE INDEX workflow_execution_candidate_turn ON forebay.workflow_execution_candidate (workspace_id, id);
CREATE INDEX workflow_execution_candidate_taken ON forebay.workflow_execution_candidate (taken_by)
    WHERE taken_by IS NOT NULL;
CREATE INDEX workflow_execution_candidate_of ON forebay.workflow_execution_candidate (execution_id)
    WHERE execution_id IS NOT NULL;

-- ── Schedules ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- When definitions start by themselves.
CREATE TABLE forebay.schedule (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    workflow_definition_id uuid NOT NULL REFERENCES forebay.workflow_definition,
    -- Made by that definition's `on: schedule`, and replaced when it is published again.
    by_definition boolean NOT NULL DEFAULT false,
    -- Again and again, or once.
    cron text CHECK (length(cron) BETWEEN 1 AND 200),
    timezone text,
    run_at timestamptz,
    input jsonb,
    priority smallint NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 5),
    concurrency_key text CHECK (length(concurrency_key) BETWEEN 1 AND 200),
    overlap text NOT NULL CHECK (overlap IN ('skip', 'buffer_one', 'allow')),
    catch_up text NOT NULL CHECK (catch_up IN ('skip', 'last', 'all')),
    status text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'PAUSED', 'ENDED')),
    -- Why it ended.
    reason text,
    -- The first tick that nobody looked at. A paused schedule keeps it.
    next_at timestamptz,
    -- A tick that waits for the end of an execution that this schedule started.
    buffered_at timestamptz,
    -- It was in trouble: not looked at before then.
    retry_at timestamptz,
    -- Counts changes of what it starts: a start is judged by what it was judged for.
    revision int NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((cron IS NULL) = (timezone IS NULL) AND (cron IS NULL) <> (run_at IS NULL)),
    CHECK ((status = 'ENDED') = (next_at IS NULL) AND (status = 'ENDED') = (reason IS NOT NULL)),
    CHECK (buffered_at IS NULL OR status <> 'ENDED'),
    CHECK (NOT by_definition OR cron IS NOT NULL)
);
CREATE INDEX schedule_due ON forebay.schedule (greatest(next_at, retry_at), id) WHERE status = 'ACTIVE';
CREATE INDEX schedule_buffered ON forebay.schedule (id) WHERE status = 'ACTIVE' AND buffered_at IS NOT NULL;
CREATE INDEX schedule_of_workspace ON forebay.schedule (workspace_id, id);
CREATE INDEX schedule_of_definition ON forebay.schedule (workflow_definition_id);
CREATE INDEX schedule_ended ON forebay.schedule (updated_at) WHERE status = 'ENDED';
CREATE UNIQUE INDEX schedule_of_document ON forebay.schedule (workflow_definition_id, cron, timezone) WHERE by_definition;

-- What became of each tick. One row a tick, ever: written in the transaction that starts its execution and moves the
-- schedule on.
CREATE TABLE forebay.schedule_tick (
    schedule_id uuid NOT NULL REFERENCES forebay.schedule ON DELETE CASCADE,
    tick_at timestamptz NOT NULL,
    -- Triggered, not come by itself.
    by_hand boolean NOT NULL DEFAULT false,
    status text NOT NULL CHECK (status IN ('STARTED', 'BUFFERED', 'SKIPPED', 'FAILED', 'REFUSED')),
    reason text,
    execution_id uuid,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schedule_id, tick_at, by_hand),
    CHECK ((status = 'STARTED') = (execution_id IS NOT NULL)),
    CHECK (status IN ('STARTED', 'BUFFERED') OR reason IS NOT NULL)
);
-- Those whose executions may be open, behind however many that started nothing.
CREATE INDEX schedule_tick_started ON forebay.schedule_tick (schedule_id, tick_at) WHERE status = 'STARTED';

-- ── Webhooks ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Who is told when executions end.
CREATE TABLE forebay.webhook (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    url text NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    -- Which ends.
    events text[] NOT NULL CHECK (cardinality(events) BETWEEN 1 AND 4
        AND events <@ ARRAY['COMPLETED', 'FAILED', 'CANCELED', 'TIMED_OUT']),
    -- Null: of every definition.
    workflow_definition_id uuid REFERENCES forebay.workflow_definition,
    description text CHECK (length(description) <= 500),
    -- Nothing was taken since then; null: the last was, or there was none.
    failing_since timestamptz,
    disabled_at timestamptz,
    disabled_reason text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
CREATE INDEX webhook_of_workspace ON forebay.webhook (workspace_id, id);
-- What every end looks at.
CREATE INDEX webhook_live ON forebay.webhook (workspace_id) WHERE disabled_at IS NULL;

-- What messages are signed with, sealed as secrets are; the newest version, and the one before while it is still good.
CREATE TABLE forebay.webhook_secret (
    webhook_id uuid NOT NULL REFERENCES forebay.webhook ON DELETE CASCADE,
    version int NOT NULL CHECK (version >= 1),
    workspace_id uuid NOT NULL,
    value_sealed bytea NOT NULL CHECK (length(value_sealed) <= 200),
    key_sealed bytea NOT NULL CHECK (length(key_sealed) <= 200),
    key_id text NOT NULL CHECK (length(key_id) BETWEEN 1 AND 32),
    -- Null: the newest.
    ends_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (webhook_id, version)
);
CREATE UNIQUE INDEX webhook_secret_newest ON forebay.webhook_secret (webhook_id) WHERE ends_at IS NULL;
-- Which outer keys seal something is looked up at every start and readiness check, however many secrets there are.
CREATE INDEX webhook_secret_of_key ON forebay.webhook_secret (key_id);

-- One end, told to one webhook. Added by the transaction that ends the execution, which must not fail because a webhook
-- is being deleted: no foreign key.
CREATE TABLE forebay.webhook_delivery (
    id uuid PRIMARY KEY,
    webhook_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    event text NOT NULL,
    status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENDING', 'DELIVERED', 'FAILED')),
    -- Pending: when it is sent. Sending: from when on another may take it over.
    due_at timestamptz,
    claim_id uuid,
    -- How often it was sent, or was about to be when its sender died.
    attempts int NOT NULL DEFAULT 0,
    -- Of the last attempt.
    last_status int,
    last_error text CHECK (length(last_error) <= 1000),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Tried since: made, or asked for again.
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    UNIQUE (webhook_id, execution_id),
    CHECK ((status IN ('PENDING', 'SENDING')) = (due_at IS NOT NULL)),
    CHECK ((status = 'SENDING') = (claim_id IS NOT NULL)),
    CHECK ((status IN ('DELIVERED', 'FAILED')) = (ended_at IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX webhook_delivery_due ON forebay.webhook_delivery (workspace_id, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_delivery_oldest ON forebay.webhook_delivery (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_delivery_sending ON forebay.webhook_delivery (workspace_id) WHERE status = 'SENDING';
CREATE INDEX webhook_delivery_of_webhook ON forebay.webhook_delivery (webhook_id, created_at, id);
CREATE INDEX webhook_delivery_created ON forebay.webhook_delivery (created_at);

-- An address that starts a definition: made by its `on: webhook` when it is published.
CREATE TABLE forebay.hook (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    workflow_definition_id uuid NOT NULL UNIQUE REFERENCES forebay.workflow_definition,
    rule jsonb NOT NULL,
    -- The token as a hash, and how it begins; null: none was made, or it was revoked.
    token_hash bytea UNIQUE,
    token_prefix text,
    -- The one before, while it is still good.
    previous_hash bytea UNIQUE,
    previous_until timestamptz,
    rotated_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((token_hash IS NULL) = (token_prefix IS NULL)),
    CHECK ((previous_hash IS NULL) = (previous_until IS NULL))
);
CREATE INDEX hook_of_workspace ON forebay.hook (workspace_id, id);

-- ── Access ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Keys are random 256-bit values, so a fast hash keeps them safe at rest. No workspace: a root key.
CREATE TABLE forebay.api_key (
    id uuid PRIMARY KEY,
    workspace_id uuid REFERENCES forebay.workspace,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    hash bytea NOT NULL UNIQUE,
    -- How the key begins, for people who look for it.
    prefix text CHECK (length(prefix) <= 12),
    scopes text[] NOT NULL DEFAULT '{read,run,manage}'
        CHECK (scopes <@ '{read,run,manage}' AND cardinality(scopes) > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who made it: what the audit log calls it, and the stored key it showed. What a key made is revoked with it.
    created_by text CHECK (length(created_by) <= 200),
    parent_id uuid,
    expires_at timestamptz,
    revoked_at timestamptz,
    -- To the minute.
    last_used_at timestamptz
);
CREATE INDEX api_key_of_workspace ON forebay.api_key (workspace_id, id) WHERE revoked_at IS NULL;
CREATE INDEX api_key_of_all ON forebay.api_key (id) WHERE revoked_at IS NULL;
CREATE INDEX api_key_made_with ON forebay.api_key (parent_id) WHERE parent_id IS NOT NULL;

-- Secrets of workspaces: sealed before they come here, one row a name, the newest version alone. Both seals are bound
-- to workspace, name and version, so a row opens nowhere but in its own place.
CREATE TABLE forebay.secret (
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    name text NOT NULL CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$'),
    version int NOT NULL CHECK (version >= 1),
    -- The value under its data key, and that key under an outer one, which the configuration knows by this id.
    value_sealed bytea NOT NULL CHECK (length(value_sealed) <= 66000),
    key_sealed bytea NOT NULL CHECK (length(key_sealed) <= 200),
    key_id text NOT NULL CHECK (length(key_id) BETWEEN 1 AND 32),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When this version was set; sealing its key again does not change it.
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who set this version.
    created_by text NOT NULL,
    -- The hosts that it may be sent to; null for any.
    hosts text[] CHECK (cardinality(hosts) BETWEEN 1 AND 20),
    PRIMARY KEY (workspace_id, name)
);
CREATE INDEX secret_of_key ON forebay.secret (key_id);

-- ── The audit log, and changes for whoever follows ──────────────────────────────────────────────────────────────────

-- Who did what to what, in the same transaction as the deed. Only ever appended to.
CREATE TABLE forebay.activity (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    workspace_id uuid,
    actor text NOT NULL,
    action text NOT NULL,
    subject_type text NOT NULL,
    subject_id uuid NOT NULL,
    detail jsonb
);
CREATE INDEX activity_of_workspace ON forebay.activity (workspace_id, at, id);
CREATE INDEX activity_of_subject ON forebay.activity (subject_id, at, id);
CREATE INDEX activity_of_all ON forebay.activity (at, id);

-- What changed, in the order in which it can be told: read by the feed of every server, and pruned behind it.
--
-- Unlogged: a crash of the database empties it, and whoever follows it is then told to look for itself. A cursor is
-- (xid, seq): a sequence number alone is drawn before its commit, so a reader of it misses what commits late.
CREATE UNLOGGED TABLE forebay.change_log (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Drawn far apart: the changes of one entry are numbered in between.
    seq bigint GENERATED ALWAYS AS IDENTITY (START 1048576 INCREMENT 1048576),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic text NOT NULL CHECK (topic = ANY (ARRAY['execution', 'nodes', 'projection'])),
    op text NOT NULL CHECK (op = ANY (ARRAY['INSERT', 'UPDATE', 'DELETE'])),
    -- The rows that one statement changed in the same way, and whose each is. Null: no workspace's, only a root key may
    -- see it.
    refs uuid[] NOT NULL,
    workspaces uuid[] NOT NULL,
    -- What these executions became; null if only nodes of theirs have moved.
    status text,
    -- One row of the projection, all of it, as this change left it and as it found it.
    record jsonb,
    old_record jsonb,
    PRIMARY KEY (xid, seq),
    CHECK (topic <> 'projection' OR cardinality(refs) = 1)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- How far the log was pruned; one row. Unlogged too: gone with the log after a crash, which is how a reader knows.
CREATE UNLOGGED TABLE forebay.change_log_kept (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Of this transaction and older ones entries may be missing.
    gone xid8 NOT NULL
);
