-- The tables of Forebay, by feature. `docs/reference/lifecycle.md` draws the statuses; the functions in `functions/`
-- change them.
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

-- With this grant, a role needs a right only on a function or table, not also on the schema.
GRANT USAGE ON SCHEMA forebay TO PUBLIC;

-- Workspaces are spread over 64 shards by the last byte of their id (kernel::ids::WorkspaceId::shard). A claim locks
-- shards.
CREATE FUNCTION forebay.shard_of(p_workspace uuid) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $fn$ SELECT get_byte(uuid_send(p_workspace), 15) & 63 $fn$;

-- ── Workspaces: who may run how much ────────────────────────────────────────────────────────────────────────────────

CREATE TABLE forebay.tier (
    name text PRIMARY KEY,
    max_running int NOT NULL CHECK (max_running >= 0),
    -- The backlog limit of a workspace, unless the workspace or the settings have another. Null: no limit.
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
    -- Hosts that the workspace may call although they are not public, and hosts that it may not call, in the syntax of
    -- outbound.allow.
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
    -- After a deletion: when none of its items was ready any longer, so that they do not delay other items of the
    -- workspace.
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

-- The record of a start request. Written by enqueue, ended once, deleted only by retention.
--
-- No index names a column that changes after the insert, neither as a key nor in its predicate. So every update is
-- heap-only: it touches no index. What changes is found through other tables: open executions, owners and deadlines
-- through execution_queue, requests and parked runs through run_request, ends through execution_outcome.
CREATE TABLE forebay.workflow_execution (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    version_id uuid NOT NULL,
    -- Columns that never change come first: an update logs only what follows the first changed byte.
    --
    -- A child execution has its own row and runs in its root's slot. An attempt at a node of its parent created it. A
    -- root has depth 0, and counts its descendants and the nodes that they settled.
    root uuid,
    parent uuid,
    rerun_of uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    timeout_ms bigint,
    -- The version of the rules by which the execution runs (kernel::SEMANTICS when it was accepted).
    semantics int NOT NULL,
    parent_iteration int,
    parent_attempt int,
    depth smallint NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 3,
    parent_node text,
    trigger jsonb NOT NULL DEFAULT '{}',
    -- Who started it, for the audit log. Null if `trigger` names the same actor.
    actor text,
    input jsonb,
    concurrency_key text,
    idempotency_key text,
    fingerprint bytea,
    trace_context text,
    deadline_at timestamptz NOT NULL,
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELED', 'TIMED_OUT')),
    engine text,
    engine_run_id text,
    engine_location text,
    started_at timestamptz,
    completed_at timestamptz,
    duration_ms bigint,
    -- The fence of every fact: the process that runs the execution, and how often its owner changed.
    owner uuid,
    owner_epoch bigint NOT NULL DEFAULT 0,
    -- How many nodes have settled.
    last_seq bigint NOT NULL DEFAULT 0,
    output jsonb,
    error jsonb,
    cancel_requested_at timestamptz,
    -- Set in the same update that raises the epoch and so fences the owner. The next owner ends the run instead of
    -- continuing it.
    terminate_requested_at timestamptz,
    -- How often an owner died without progress since deaths_seq. From the third death on, the run runs alone.
    deaths int NOT NULL DEFAULT 0,
    deaths_seq bigint,
    alone boolean NOT NULL DEFAULT false,
    descendants int NOT NULL DEFAULT 0,
    tree_seq bigint NOT NULL DEFAULT 0,
    CHECK ((idempotency_key IS NULL) = (fingerprint IS NULL)),
    CHECK (CASE status
        WHEN 'PENDING' THEN started_at IS NULL AND completed_at IS NULL AND owner IS NULL
        WHEN 'RUNNING' THEN started_at IS NOT NULL AND completed_at IS NULL AND engine IS NOT NULL
        ELSE completed_at IS NOT NULL AND owner IS NULL END),
    CONSTRAINT workflow_execution_parent CHECK (
        (parent IS NULL) = (parent_node IS NULL) AND (parent IS NULL) = (parent_iteration IS NULL)
        AND (parent IS NULL) = (parent_attempt IS NULL) AND (parent IS NULL) = (depth = 0))
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE UNIQUE INDEX workflow_execution_idempotency ON forebay.workflow_execution (workspace_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- One child per attempt at a node, however often the attempt is performed; and all descendants of a root.
CREATE UNIQUE INDEX workflow_execution_child
    ON forebay.workflow_execution (parent, parent_node, parent_iteration, parent_attempt) WHERE parent IS NOT NULL;
CREATE INDEX workflow_execution_below ON forebay.workflow_execution (root) WHERE depth > 0;
-- For lists, newest first: of a workspace, of a definition, of all. An id begins with the time at which it was made.
-- Lists contain only roots.
CREATE INDEX workflow_execution_of_workspace ON forebay.workflow_execution (workspace_id, id) WHERE depth = 0;
CREATE INDEX workflow_execution_of_definition
    ON forebay.workflow_execution (workflow_definition_id, id) WHERE depth = 0;
CREATE INDEX workflow_execution_of_all ON forebay.workflow_execution (id) WHERE depth = 0;

-- Roots that ended in another way than COMPLETED, for lists by status. Executions that COMPLETED are nearly all, so
-- they have no row here, and open ones are found through their queue items. Retention deletes a row with its execution.
CREATE TABLE forebay.execution_outcome (
    workspace_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('FAILED', 'CANCELED', 'TIMED_OUT')),
    execution_id uuid NOT NULL,
    PRIMARY KEY (workspace_id, status, execution_id)
);
CREATE INDEX execution_outcome_of_all ON forebay.execution_outcome (status, execution_id);

-- Runs that somebody has to look at: something arrived for the run, its end was requested, or it is parked and has to
-- continue at a time. At most one row per run; none once the run has read what arrived, or has ended. Only a
-- transaction that has locked the execution's row writes its row here.
CREATE TABLE forebay.run_request (
    execution_id uuid PRIMARY KEY,
    root uuid NOT NULL,
    engine text NOT NULL,
    -- A copy of the execution's owner. Null: the run is parked, or it is a child that its root's owner runs.
    owner uuid,
    wake_at timestamptz,
    -- The end of the run was requested; the execution's row has the time.
    ends boolean NOT NULL DEFAULT false,
    CHECK (wake_at IS NOT NULL OR ends)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
-- Requests for the runs of a process; parked runs to continue, and unread requests; requests below a root.
CREATE INDEX run_request_of_owner ON forebay.run_request (owner) WHERE owner IS NOT NULL;
CREATE INDEX run_request_due ON forebay.run_request (engine, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX run_request_below ON forebay.run_request (root) WHERE execution_id <> root;

-- A node of an execution, and each iteration of a loop (from 1; 0 is the node itself).
CREATE TABLE forebay.workflow_execution_node (
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL DEFAULT 0,
    workspace_id uuid NOT NULL,
    status text NOT NULL
        CHECK (status IN ('PENDING', 'RUNNING', 'RETRYING', 'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')),
    attempt int NOT NULL DEFAULT 0,
    -- Raised each time a worker starts the attempt (functions/node.sql). So a slow worker whose attempt was started
    -- again changes nothing.
    fence int NOT NULL DEFAULT 0,
    -- The node's position in the order in which nodes settled.
    seq bigint,
    label text,
    next_at timestamptz,
    input jsonb,
    output jsonb,
    error jsonb,
    -- The node's last failed attempts.
    earlier jsonb,
    started_at timestamptz,
    completed_at timestamptz,
    duration_ms bigint,
    -- The execution from which a rerun copied this result, if it was copied.
    kept_from uuid,
    -- The node may be performed at most once: if its execution is terminated, nobody knows whether a call took effect.
    once boolean NOT NULL DEFAULT false,
    PRIMARY KEY (execution_id, node, iteration),
    CHECK ((status IN ('PENDING', 'RUNNING', 'RETRYING')) = (completed_at IS NULL)),
    CHECK ((completed_at IS NULL) = (seq IS NULL)),
    CHECK (status <> 'RETRYING' OR next_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

-- Deleted executions that still have rows in other tables, because one commit could not delete them all. Nearly always
-- empty.
CREATE TABLE forebay.retired_execution (
    id uuid PRIMARY KEY
);

-- ── The queue ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- A queue item: a small row that changes often. While its stage is 5, it holds one of its workspace's slots. It has no
-- foreign keys, because each would lock the referenced row at every insert; enqueue joins the definition instead.
--
-- stage  forebay.…                      meaning
--   0    stage_ready()                  may be claimed in its turn
--   1    stage_delayed()                not before available_at: delayed, or backing off
--   2    stage_waits_for_key()          blocked: its concurrency key has no room
--   3    stage_waits_for_definition()   blocked: its definition has no room, or is paused
--   5    stage_slot()                   claimed or dispatched: it holds a slot
--   9    stage_failed()                 a dead letter
--
-- A takeover of a claimed item is a heap-only update. Claimed -> dispatched is not, because execution_queue_claimed
-- names the status; nor is a change of the owner, which is a key of execution_queue_owned.
CREATE TABLE forebay.execution_queue (
    -- Also the id of the execution.
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    workflow_definition_id uuid NOT NULL,
    -- The item's position in the queue: its arrival time in ms, minus the bonus of its priority.
    rank bigint NOT NULL,
    -- Grows from claim to claim of a workspace; drawn when the item gets its slot, null without one. See claim_mark.
    claim_number bigint,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    available_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When the execution ends if it has not begun. The owner of a run has a timer for the run's own deadline, and a
    -- parked run wakes at it.
    deadline_at timestamptz NOT NULL DEFAULT 'infinity',
    attempt_count int NOT NULL DEFAULT 0,
    takeover_count int NOT NULL DEFAULT 0,
    shard smallint GENERATED ALWAYS AS (forebay.shard_of(workspace_id)) STORED,
    priority smallint NOT NULL DEFAULT 3,
    stage smallint NOT NULL DEFAULT 0,
    -- The limit of the item's definition or key counts it. Unless the item is blocked now, it has passed that limit.
    limited boolean NOT NULL DEFAULT false,
    -- The item's start may have reached the engine, so it keeps its slot until that is known.
    in_doubt boolean NOT NULL DEFAULT false,
    concurrency_key text,
    status text NOT NULL DEFAULT 'PENDING',
    claim_id uuid,
    claimed_by uuid,
    -- The process that runs the execution, for those who look for the runs of a process. Null: not begun, parked, or on
    -- an external engine. The fence is the execution's own owner.
    owner uuid,
    claimed_at timestamptz,
    dispatched_at timestamptz,
    last_error text,
    -- One condition, because each one costs every statement that writes a row.
    CHECK (priority BETWEEN 1 AND 5 AND (stage <> 2 OR concurrency_key IS NOT NULL)
        AND (stage = 5) = (claim_number IS NOT NULL) AND claim_number > 0 AND CASE status
        WHEN 'PENDING' THEN stage IN (0, 1, 2, 3) AND claim_id IS NULL AND claimed_by IS NULL
            AND claimed_at IS NULL AND dispatched_at IS NULL AND owner IS NULL
        WHEN 'CLAIMED' THEN stage = 5 AND claim_id IS NOT NULL AND claimed_by IS NOT NULL
            AND claimed_at IS NOT NULL AND dispatched_at IS NULL AND owner IS NULL
        WHEN 'DISPATCHED' THEN stage = 5 AND claim_id IS NOT NULL AND claimed_by IS NOT NULL
            AND claimed_at IS NOT NULL AND dispatched_at IS NOT NULL
        WHEN 'FAILED' THEN stage = 9 AND last_error IS NOT NULL AND owner IS NULL
        ELSE false END)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, autovacuum_vacuum_cost_delay = 0);
-- The two indexes that a claim reads: the next items of each priority, and the slots in use. It reads both from the
-- workspace's mark on (claim_mark). The slots have their own condition, which means the same as stage = 5 (the CHECK
-- says so): a claim that does not name the stage cannot be planned with another index of slots, which no mark shortens.
CREATE INDEX execution_queue_ready ON forebay.execution_queue (shard, workspace_id, priority, rank, id) WHERE stage = 0;
CREATE INDEX execution_queue_slot ON forebay.execution_queue (shard, workspace_id, claim_number)
    WHERE claim_number IS NOT NULL;
-- Slots by the process that runs them, and those that no process of ours runs; and claimed items that have not begun.
CREATE INDEX execution_queue_owned ON forebay.execution_queue (owner, id) WHERE stage = 5;
CREATE INDEX execution_queue_claimed ON forebay.execution_queue (shard, id) WHERE status = 'CLAIMED';
-- Deadlines of items that have not begun.
CREATE INDEX execution_queue_deadline ON forebay.execution_queue (deadline_at) WHERE owner IS NULL AND stage < 9;
-- Due delays; and delayed items of a workspace or definition, for deletions and for counting a backlog.
CREATE INDEX execution_queue_due ON forebay.execution_queue (available_at) WHERE stage = 1;
CREATE INDEX execution_queue_delayed
    ON forebay.execution_queue (shard, workspace_id, workflow_definition_id) WHERE stage = 1;
-- Items blocked by a key, or by a definition.
CREATE INDEX execution_queue_key
    ON forebay.execution_queue (shard, workspace_id, workflow_definition_id, concurrency_key, rank, id) WHERE stage = 2;
CREATE INDEX execution_queue_definition
    ON forebay.execution_queue (shard, workspace_id, workflow_definition_id, rank, id) WHERE stage = 3;
-- Items that passed a definition's limit, and items that passed a key's limit. An item that passed its key's limit may
-- still wait for its definition's.
CREATE INDEX execution_queue_limited ON forebay.execution_queue (workspace_id, workflow_definition_id)
    WHERE limited AND stage IN (0, 5);
CREATE INDEX execution_queue_keyed ON forebay.execution_queue (workspace_id, workflow_definition_id, concurrency_key)
    WHERE concurrency_key IS NOT NULL AND stage IN (0, 3, 5);
-- Dead letters: of all, of a workspace, of a definition.
CREATE INDEX execution_queue_dead_letter ON forebay.execution_queue (id) WHERE stage = 9;
CREATE INDEX execution_queue_dead_letter_by_workspace ON forebay.execution_queue (workspace_id, id) WHERE stage = 9;
CREATE INDEX execution_queue_dead_letter_by_definition ON forebay.execution_queue (workflow_definition_id, id)
    WHERE stage = 9;

-- The name under which one source document reads the queue.
CREATE VIEW public.workflow_execution_queue AS
SELECT id, workspace_id, workflow_definition_id, id AS execution_id, status, stage, shard, priority, rank,
       attempt_count, takeover_count, created_at, available_at, deadline_at, claim_id, claimed_by, claimed_at,
       dispatched_at, owner, concurrency_key, limited, in_doubt, last_error
  FROM forebay.execution_queue;

-- From where a claim reads the two indexes above. An open snapshot, for example of a pg_dump, keeps the index entries
-- of ended items, and without a mark each claim would read past all of them. functions/mark.sql moves the marks;
-- docs/explanation/admission.md explains why they are exact.
CREATE TABLE forebay.claim_mark (
    workspace_id uuid PRIMARY KEY,
    -- By priority: no ready item has a lower rank. A hint: the probe lowers it where that is wrong.
    ready_from bigint[] NOT NULL DEFAULT '{0,0,0,0,0}' CHECK (cardinality(ready_from) = 5),
    -- Every slot has a greater claim_number than slots_after, or one of slots_known. A claim resets both if its number
    -- is not above slots_after.
    slots_after bigint NOT NULL DEFAULT 0,
    slots_known bigint[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20);
-- Drawn only under a shard's lock. CACHE 1: a session that kept numbers would draw an old one after a newer mark, and
-- so reset the mark. Greater than zero, where a claim without a mark begins to count.
CREATE SEQUENCE forebay.claim_number MINVALUE 1 NO CYCLE CACHE 1;

-- The last count of a workspace's backlog, and how many starts of workspaces with a limit had arrived by then. This is
-- a hint for enqueue (functions/shared/backlog.sql): if the row is missing or old, the backlog is counted.
CREATE TABLE forebay.backlog (
    workspace_id uuid PRIMARY KEY,
    counted int NOT NULL DEFAULT 0 CHECK (counted >= 0),
    arrivals bigint NOT NULL DEFAULT 0,
    counted_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);
-- Counts arrivals. A sequence is not transactional, so no transaction waits for another to count an arrival.
CREATE SEQUENCE forebay.backlog_arrivals;

-- ── Processes ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- The releases whose functions exist, each in its schema forebay_r<number>. They are dropped a day after the last
-- heartbeat of a process that uses them (functions/release.sql).
CREATE TABLE forebay.release (
    number int PRIMARY KEY,
    -- When the release's functions were last created.
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Digests of the functions that the release created: its own, and those of this schema. The newest release's shared
    -- functions are in effect. If a process finds the digests of its own build, it changes nothing.
    functions text NOT NULL DEFAULT '',
    shared_functions text NOT NULL DEFAULT ''
);

-- The version of the claim's rules: locks, stages, and what is counted; one row. A claim with another version is
-- refused, because concurrent claims with different rules would break the limits. A release that changes the rules
-- raises the version once no process of an older release is alive.
CREATE TABLE forebay.protocol (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    number int NOT NULL
);
INSERT INTO forebay.protocol (number) VALUES (1);

-- Processes and their heartbeats. An id is new at each start and never reused.
CREATE TABLE forebay.process (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    pid int NOT NULL,
    roles text[] NOT NULL,
    version text NOT NULL,
    -- The release whose functions the process calls.
    release int NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    -- The process stopped sending heartbeats; false: it shut down.
    died boolean NOT NULL DEFAULT false,
    -- The process takes a share of the shards, whether or not it has room.
    dispatching boolean NOT NULL DEFAULT false,
    -- The process has room for new work, and also claims for full owners.
    has_room boolean NOT NULL DEFAULT false,
    -- How many runs of dead processes the process found in its shards and has no room for.
    waiting_runs int NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

-- Which process owns which shard: an optimization, never a fence.
CREATE TABLE forebay.shard_owner (
    shard smallint PRIMARY KEY,
    owner uuid,
    until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);
INSERT INTO forebay.shard_owner (shard) SELECT generate_series(0, 63);

-- Leases, in the exact layout of the ShedLock library, because other programs use the same table. If the table exists,
-- it is used unchanged (`migrate` has checked its layout). Times are UTC.
CREATE TABLE IF NOT EXISTS public.shedlock (
    name varchar(64) NOT NULL PRIMARY KEY,
    lock_until timestamp NOT NULL,
    locked_at timestamp NOT NULL,
    locked_by varchar(255) NOT NULL
);

-- ── Events and jobs ─────────────────────────────────────────────────────────────────────────────────────────────────

-- Events: appended by the API, by EMIT_EVENT, and by plain SQL from any program. They never change, except for the
-- result of their fold. To fold an event is to make its job.
CREATE TABLE public.domain_events (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    sequence bigint GENERATED ALWAYS AS IDENTITY,
    -- Null: of no workspace, or of one that does not exist yet.
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
    -- Whether a binding applied when the event was appended; null: the event is a fact about a job.
    bound boolean,
    PRIMARY KEY (sequence),
    -- A value that a client can choose is unique only within its workspace. The id comes first in the index, because
    -- requests with a root key look an event up by id alone.
    CONSTRAINT domain_events_id UNIQUE NULLS NOT DISTINCT (id, workspace_id),
    CONSTRAINT domain_events_stream UNIQUE NULLS NOT DISTINCT (stream_id, stream_type, workspace_id, stream_version),
    CHECK ((processing_error IS NULL) = (processing_failed_at IS NULL))
);
CREATE INDEX domain_events_by_type ON public.domain_events (event_type, sequence);
CREATE INDEX domain_events_by_workspace ON public.domain_events (workspace_id, sequence);
CREATE INDEX domain_events_of_workspace_type ON public.domain_events (workspace_id, event_type, sequence);
-- Events before a wait was opened, which the wait has to check.
CREATE INDEX domain_events_of_type ON public.domain_events (workspace_id, event_type, created_at, sequence)
    WHERE stream_type <> 'workflow_queue';
-- Events whose fold failed. Events whose stored error is transient are folded again by a loop; the event that was tried
-- longest ago comes first.
CREATE INDEX domain_events_failed ON public.domain_events (sequence) WHERE processing_error IS NOT NULL;
CREATE INDEX domain_events_failed_of_workspace ON public.domain_events (workspace_id, sequence)
    WHERE processing_error IS NOT NULL;
CREATE INDEX domain_events_to_fold ON public.domain_events (processing_failed_at)
    WHERE left(processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58']);

-- The secret that makes derived event ids unpredictable; one row.
CREATE TABLE forebay.event_secret (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea NOT NULL CHECK (octet_length(secret) = 32)
);
INSERT INTO forebay.event_secret (secret) VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- Which events make a job, and what runs it: a definition, or external workers only.
CREATE TABLE forebay.event_binding (
    id uuid PRIMARY KEY,
    -- Null: for the whole platform.
    workspace_id uuid REFERENCES forebay.workspace,
    -- Exact, or a prefix: order.*
    event_type text NOT NULL CHECK (length(event_type) BETWEEN 1 AND 200),
    workflow_definition_id uuid REFERENCES forebay.workflow_definition,
    -- The binding was made by the definition's `on: event`, and is replaced when the definition is published again.
    by_definition boolean NOT NULL DEFAULT false,
    filter text,
    input jsonb,
    workflow_id text,
    lease_s int NOT NULL DEFAULT 900 CHECK (lease_s BETWEEN 1 AND 604800),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Bindings take turns in starting jobs. A binding whose workspace is full gets no turn until this time.
    full_until timestamptz,
    CHECK (NOT by_definition OR workflow_definition_id IS NOT NULL),
    -- Without a definition, Forebay does not read these columns.
    CHECK (workflow_definition_id IS NOT NULL OR (filter IS NULL AND input IS NULL AND workflow_id IS NULL))
);
CREATE UNIQUE INDEX event_binding_type ON forebay.event_binding (event_type, workspace_id) NULLS NOT DISTINCT;
CREATE INDEX event_binding_of_definition ON forebay.event_binding (workflow_definition_id)
    WHERE workflow_definition_id IS NOT NULL;
CREATE INDEX event_binding_of_workspace ON forebay.event_binding (workspace_id, id);

-- The job queue as its users know it: these columns, types and defaults are a contract with them. Forebay's own columns
-- are in forebay.workflow_queue_job.
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

-- Forebay's own columns for each row of workflow_queue_projection. The triggers of that table maintain them.
CREATE TABLE forebay.workflow_queue_job (
    id uuid PRIMARY KEY,
    -- The job's event: its id and workspace (null: no workspace). workflow_queue_projection has no workspace column.
    event_id uuid,
    event_workspace_id uuid,
    event_type text COLLATE "C",
    -- The event's workspace if it exists; null: the job belongs to the platform.
    workspace_id uuid,
    binding_id uuid,
    -- How many facts the job has.
    version int NOT NULL,
    -- The binding's lease when the event was appended.
    lease_s int NOT NULL DEFAULT 900,
    -- Since when the job is pending; null: it is not pending.
    pending_since timestamptz,
    -- From when on the projector may claim the pending job; null: it may not.
    due_at timestamptz,
    -- Of a claimed job: how it was claimed (plain SQL, API, projector), under which claim, and until when the claim
    -- holds without a heartbeat. An ended job keeps its claim, so that a repeated end is recognized.
    claimed_via text CHECK (claimed_via IN ('sql', 'api', 'projector')),
    claim_id uuid,
    lease_until timestamptz,
    -- The lease that was requested with a claim through the API. A heartbeat without a lease uses it again.
    claim_lease_s int,
    -- When the job failed, if it will be retried.
    retry_from timestamptz,
    CHECK (claimed_via IS DISTINCT FROM 'sql' OR claim_id IS NULL),
    CHECK (pending_since IS NULL OR (claimed_via IS NULL AND claim_id IS NULL AND retry_from IS NULL))
) WITH (fillfactor = 70);
-- One job per event.
CREATE UNIQUE INDEX workflow_queue_job_event ON forebay.workflow_queue_job (event_id, event_workspace_id)
    NULLS NOT DISTINCT WHERE event_id IS NOT NULL;
-- Pending jobs, oldest first: of all, of a workspace, of a type, of a binding. So a worker of one type does not read
-- jobs of other types.
CREATE INDEX workflow_queue_job_pending
    ON forebay.workflow_queue_job (pending_since, id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_pending_of ON forebay.workflow_queue_job (workspace_id, pending_since, id)
    WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_type ON forebay.workflow_queue_job (event_type, pending_since, id)
    WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_workspace_type
    ON forebay.workflow_queue_job (workspace_id, event_type, pending_since, id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_binding ON forebay.workflow_queue_job (binding_id, due_at, id)
    WHERE pending_since IS NOT NULL;
-- Claimed jobs: by lease, by the projector, by claim; and those that will be retried.
CREATE INDEX workflow_queue_job_lease ON forebay.workflow_queue_job (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX workflow_queue_job_projector ON forebay.workflow_queue_job (id) WHERE claimed_via = 'projector';
CREATE INDEX workflow_queue_job_claim ON forebay.workflow_queue_job (claim_id) WHERE claim_id IS NOT NULL;
CREATE INDEX workflow_queue_job_retry ON forebay.workflow_queue_job (retry_from) WHERE retry_from IS NOT NULL;
-- The jobs of a workspace, so that a workspace that reads its jobs pays only for its own.
CREATE INDEX workflow_queue_job_of_workspace ON forebay.workflow_queue_job (workspace_id, id);

-- ── Waits and tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

-- Waits of nodes for something outside the engine: for a person, a callback or an event (WAIT), or for a user's own
-- worker (TASK).
CREATE TABLE forebay.workflow_execution_wait (
    execution_id uuid NOT NULL,
    node text NOT NULL,
    iteration int NOT NULL DEFAULT 0,
    -- The id by which workers name a task.
    id uuid NOT NULL UNIQUE,
    workspace_id uuid NOT NULL,
    -- The execution whose run reads the answer; null: not opened yet.
    holder uuid,
    kind text NOT NULL CHECK (kind IN ('WAIT', 'TASK')),
    -- The node's attempt; 0: not opened yet.
    attempt int NOT NULL,
    status text NOT NULL CHECK (status IN ('OPEN', 'CLAIMED', 'ANSWERED', 'RECEIVED', 'EXPIRED', 'CLOSED')),
    -- WAIT: the type of the event that answers it, from which time on, and the condition on it.
    event_type text,
    match text,
    events_from timestamptz,
    -- Events are checked a second time once every transaction below recheck_xid has ended. Null: that id was not drawn
    -- yet.
    recheck boolean NOT NULL DEFAULT false,
    recheck_xid xid8,
    -- TASK: the queue in which the task is offered, and how long a worker may be silent.
    queue text,
    lease_s float8,
    input jsonb,
    opened_at timestamptz,
    expires_at timestamptz,
    -- The claim of a task, its worker, and until when the claim holds without a heartbeat.
    claim_id uuid,
    worker text,
    claim_lease_s float8,
    lease_until timestamptz,
    progress jsonb,
    -- How often the task was handed out in this attempt, and how often its worker stopped sending heartbeats.
    deliveries int NOT NULL DEFAULT 0,
    lost int NOT NULL DEFAULT 0,
    -- The claim that ended the previous attempt, so that a repeated end is recognized.
    ended_claim uuid,
    outcome text CHECK (outcome IN ('COMPLETED', 'FAILED')),
    output jsonb,
    error jsonb,
    answered_by text,
    answered_at timestamptz,
    -- When the run read the answer, or read that the wait has expired.
    read_at timestamptz,
    PRIMARY KEY (execution_id, node, iteration),
    CHECK ((holder IS NULL) = (attempt = 0)),
    CHECK ((holder IS NULL) = (opened_at IS NULL)),
    CHECK (holder IS NOT NULL OR (kind = 'WAIT' AND status IN ('ANSWERED', 'CLOSED'))),
    CHECK (attempt = 0 OR (kind = 'TASK') = (queue IS NOT NULL)),
    CHECK (attempt = 0 OR (kind = 'TASK') = (lease_s IS NOT NULL)),
    CHECK ((event_type IS NULL) = (events_from IS NULL) AND (event_type IS NULL OR kind = 'WAIT')),
    CHECK (status <> 'CLAIMED' OR kind = 'TASK'),
    CHECK (CASE status WHEN 'CLAIMED' THEN claim_id IS NOT NULL AND lease_until IS NOT NULL
                       ELSE lease_until IS NULL END),
    CHECK (status <> 'OPEN' OR claim_id IS NULL),
    CHECK ((claim_id IS NULL) = (worker IS NULL)),
    CHECK ((outcome IS NOT NULL) = (answered_at IS NOT NULL) AND (outcome IS NOT NULL) = (answered_by IS NOT NULL)),
    CHECK (status NOT IN ('OPEN', 'CLAIMED', 'EXPIRED') OR outcome IS NULL),
    CHECK (status NOT IN ('ANSWERED', 'RECEIVED') OR outcome IS NOT NULL),
    CHECK ((outcome IS NOT DISTINCT FROM 'FAILED') = (error IS NOT NULL)),
    CHECK (status NOT IN ('OPEN', 'CLAIMED', 'ANSWERED') OR read_at IS NULL),
    CHECK (status <> 'RECEIVED' OR read_at IS NOT NULL),
    CHECK (NOT recheck OR status = 'OPEN')
) WITH (fillfactor = 70);
-- Waits that were answered or have expired, but that their run has not read yet; and waits that are still open.
CREATE INDEX workflow_execution_wait_unread ON forebay.workflow_execution_wait (holder)
    WHERE read_at IS NULL AND status IN ('ANSWERED', 'EXPIRED');
CREATE INDEX workflow_execution_wait_open ON forebay.workflow_execution_wait (holder, expires_at)
    WHERE status IN ('OPEN', 'CLAIMED');
-- For the background loops: waits whose time is up, tasks of silent workers, waits with a second check for events.
CREATE INDEX workflow_execution_wait_expiry ON forebay.workflow_execution_wait (expires_at)
    WHERE status IN ('OPEN', 'CLAIMED') AND expires_at IS NOT NULL;
CREATE INDEX workflow_execution_wait_lease ON forebay.workflow_execution_wait (lease_until) WHERE status = 'CLAIMED';
CREATE INDEX workflow_execution_wait_recheck ON forebay.workflow_execution_wait (recheck_xid) WHERE recheck;
-- The open waits that each event is compared with, in pages by id.
CREATE INDEX workflow_execution_wait_event ON forebay.workflow_execution_wait (workspace_id, event_type, id)
    WHERE status = 'OPEN' AND event_type IS NOT NULL;
-- Tasks: as they are offered, by id, and by workspace.
CREATE INDEX workflow_execution_wait_offer ON forebay.workflow_execution_wait (queue, workspace_id, opened_at, id)
    WHERE status = 'OPEN' AND kind = 'TASK';
CREATE INDEX workflow_execution_wait_task ON forebay.workflow_execution_wait (id) WHERE kind = 'TASK';
CREATE INDEX workflow_execution_wait_task_of ON forebay.workflow_execution_wait (workspace_id, id) WHERE kind = 'TASK';

-- Tokens that answer one wait, once, without an API key; stored as hashes.
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

-- Candidates: events and waits that still have to be compared with each other. They are read in pages, and workspaces
-- take turns. So the cost of appending an event does not depend on the number of waits, and the cost of opening a wait
-- does not depend on the number of events.
CREATE TABLE forebay.workflow_execution_candidate (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    -- A candidate is an event, to compare with the open waits for its type, by id. Waits up to after_wait are done.
    event_id uuid,
    after_wait uuid,
    -- Or a candidate is a wait, to compare with the events of its type since its execution was created, in order.
    -- Events up to (after_at, after_sequence) are done.
    execution_id uuid,
    node text,
    iteration int,
    after_at timestamptz,
    after_sequence bigint,
    -- The claim under which a page of the candidate is evaluated, and until when; how far the page goes, and whether
    -- there is more after it.
    claimed_by uuid,
    claimed_until timestamptz,
    next_wait uuid,
    next_at timestamptz,
    next_sequence bigint,
    more boolean NOT NULL DEFAULT false,
    CHECK ((event_id IS NULL) <> (execution_id IS NULL)),
    CHECK ((execution_id IS NULL) = (node IS NULL) AND (execution_id IS NULL) = (iteration IS NULL)),
    CHECK ((execution_id IS NULL) = (after_at IS NULL) AND (execution_id IS NULL) = (after_sequence IS NULL)),
    CHECK ((claimed_by IS NULL) = (claimed_until IS NULL))
);
CREATE INDEX workflow_execution_candidate_turn ON forebay.workflow_execution_candidate (workspace_id, id);
CREATE INDEX workflow_execution_candidate_claimed ON forebay.workflow_execution_candidate (claimed_by)
    WHERE claimed_by IS NOT NULL;
CREATE INDEX workflow_execution_candidate_of ON forebay.workflow_execution_candidate (execution_id)
    WHERE execution_id IS NOT NULL;

-- ── Schedules ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- Schedules: when to start executions of a definition.
CREATE TABLE forebay.schedule (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    workflow_definition_id uuid NOT NULL REFERENCES forebay.workflow_definition,
    -- The schedule was made by the definition's `on: schedule`, and is replaced when the definition is published again.
    by_definition boolean NOT NULL DEFAULT false,
    -- A cron expression, or one time.
    cron text CHECK (length(cron) BETWEEN 1 AND 200),
    timezone text,
    run_at timestamptz,
    input jsonb,
    priority smallint NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 5),
    concurrency_key text CHECK (length(concurrency_key) BETWEEN 1 AND 200),
    overlap text NOT NULL CHECK (overlap IN ('skip', 'buffer_one', 'allow')),
    catch_up text NOT NULL CHECK (catch_up IN ('skip', 'last', 'all')),
    status text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'PAUSED', 'ENDED')),
    -- Why the schedule ended.
    reason text,
    -- The first tick that was not processed. A paused schedule keeps this tick.
    next_at timestamptz,
    -- A tick that waits until an earlier execution of this schedule has ended.
    buffered_at timestamptz,
    -- After an error: the schedule is not processed before this time.
    retry_at timestamptz,
    -- Counts the changes of the schedule, so that an execution gets the input that was checked.
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
CREATE UNIQUE INDEX schedule_of_document
    ON forebay.schedule (workflow_definition_id, cron, timezone) WHERE by_definition;

-- The result of each tick. One row per tick, ever, written in the transaction that starts its execution and advances
-- the schedule.
CREATE TABLE forebay.schedule_tick (
    schedule_id uuid NOT NULL REFERENCES forebay.schedule ON DELETE CASCADE,
    tick_at timestamptz NOT NULL,
    -- The execution was started by a request, not by the schedule.
    by_hand boolean NOT NULL DEFAULT false,
    status text NOT NULL CHECK (status IN ('STARTED', 'BUFFERED', 'SKIPPED', 'FAILED', 'REFUSED')),
    reason text,
    execution_id uuid,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schedule_id, tick_at, by_hand),
    CHECK ((status = 'STARTED') = (execution_id IS NOT NULL)),
    CHECK (status IN ('STARTED', 'BUFFERED') OR reason IS NOT NULL)
);
-- Ticks whose executions may be open. Ticks that started nothing are not in this index.
CREATE INDEX schedule_tick_started ON forebay.schedule_tick (schedule_id, tick_at) WHERE status = 'STARTED';

-- ── Webhooks ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Webhooks: URLs to which the ends of executions are reported.
CREATE TABLE forebay.webhook (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    url text NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    -- The terminal statuses to which the webhook subscribes.
    events text[] NOT NULL CHECK (cardinality(events) BETWEEN 1 AND 4
        AND events <@ ARRAY['COMPLETED', 'FAILED', 'CANCELED', 'TIMED_OUT']),
    -- Null: executions of every definition.
    workflow_definition_id uuid REFERENCES forebay.workflow_definition,
    description text CHECK (length(description) <= 500),
    -- Since when every delivery has failed; null: the last delivery succeeded, or there was none.
    failing_since timestamptz,
    disabled_at timestamptz,
    disabled_reason text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
CREATE INDEX webhook_of_workspace ON forebay.webhook (workspace_id, id);
-- Read at every end of an execution.
CREATE INDEX webhook_live ON forebay.webhook (workspace_id) WHERE disabled_at IS NULL;

-- The secrets that sign messages, encrypted like other secrets: the newest version, and the previous one while it is
-- valid.
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
-- Finds the outer keys in use, at every start and readiness check, however many secrets there are.
CREATE INDEX webhook_secret_of_key ON forebay.webhook_secret (key_id);

-- The end of one execution, sent to one webhook. Added by the transaction that ends the execution, which must not fail
-- because a webhook is being deleted: no foreign key.
CREATE TABLE forebay.webhook_delivery (
    id uuid PRIMARY KEY,
    webhook_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    event text NOT NULL,
    status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENDING', 'DELIVERED', 'FAILED')),
    -- Of a pending delivery: when to send it. Of a delivery that is being sent: from when on another process may claim
    -- it.
    due_at timestamptz,
    claim_id uuid,
    -- How often the delivery was sent, or was about to be sent when its sender died.
    attempts int NOT NULL DEFAULT 0,
    -- The HTTP status of the last attempt.
    last_status int,
    last_error text CHECK (length(last_error) <= 1000),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When the delivery was added, or last retried on request.
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

-- A trigger: a secret address that starts a definition. Publishing a definition with `on: http` creates it.
CREATE TABLE forebay.trigger (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    workflow_definition_id uuid NOT NULL UNIQUE REFERENCES forebay.workflow_definition,
    rule jsonb NOT NULL,
    -- The token's hash and its first characters; null: none was made, or it was revoked.
    token_hash bytea UNIQUE,
    token_prefix text,
    -- The previous token, while it is valid.
    previous_hash bytea UNIQUE,
    previous_expires_at timestamptz,
    rotated_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((token_hash IS NULL) = (token_prefix IS NULL)),
    CHECK ((previous_hash IS NULL) = (previous_expires_at IS NULL))
);
CREATE INDEX trigger_of_workspace ON forebay.trigger (workspace_id, id);

-- ── Access ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- API keys. A key is a random 256-bit value, so a fast hash is safe. A key without a workspace is a root key.
CREATE TABLE forebay.api_key (
    id uuid PRIMARY KEY,
    workspace_id uuid REFERENCES forebay.workspace,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    hash bytea NOT NULL UNIQUE,
    -- The first characters of the key, to recognize it.
    prefix text CHECK (length(prefix) <= 12),
    scopes text[] NOT NULL DEFAULT '{read,run,manage}'
        CHECK (scopes <@ '{read,run,manage}' AND cardinality(scopes) > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who created the key: the name in the audit log, and the stored key that was used. A key is revoked with the key
    -- that created it.
    created_by text CHECK (length(created_by) <= 200),
    parent_id uuid,
    expires_at timestamptz,
    revoked_at timestamptz,
    -- When the key was last used, to the minute.
    last_used_at timestamptz
);
CREATE INDEX api_key_of_workspace ON forebay.api_key (workspace_id, id) WHERE revoked_at IS NULL;
CREATE INDEX api_key_of_all ON forebay.api_key (id) WHERE revoked_at IS NULL;
CREATE INDEX api_key_made_with ON forebay.api_key (parent_id) WHERE parent_id IS NOT NULL;

-- Secrets of workspaces: encrypted before they arrive here, one row per name, only the newest version. Both encryptions
-- are bound to workspace, name and version, so a row cannot be decrypted in another place.
CREATE TABLE forebay.secret (
    workspace_id uuid NOT NULL REFERENCES forebay.workspace,
    name text NOT NULL CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$'),
    version int NOT NULL CHECK (version >= 1),
    -- The value encrypted with its data key; the data key encrypted with an outer key; and the name of that outer key
    -- in the configuration.
    value_sealed bytea NOT NULL CHECK (length(value_sealed) <= 66000),
    key_sealed bytea NOT NULL CHECK (length(key_sealed) <= 200),
    key_id text NOT NULL CHECK (length(key_id) BETWEEN 1 AND 32),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When this version was set; re-encrypting its key does not change it.
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who set this version.
    created_by text NOT NULL,
    -- The hosts to which the secret may be sent; null: any host.
    hosts text[] CHECK (cardinality(hosts) BETWEEN 1 AND 20),
    PRIMARY KEY (workspace_id, name)
);
CREATE INDEX secret_of_key ON forebay.secret (key_id);

-- ── The audit log and the change log ────────────────────────────────────────────────────────────────────────────────

-- Who did what to what, written in the same transaction as the change. Append-only. Starts of executions are not here:
-- the execution's own row has its actor and its time.
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

-- Starts of executions, as entries of the audit log; and the whole audit log.
CREATE VIEW forebay.execution_start AS
SELECT execution.id, execution.created_at AS at, execution.workspace_id,
       coalesce(execution.actor, execution.trigger ->> 'actor') AS actor,
       CASE WHEN execution.rerun_of IS NULL THEN 'execution.start' ELSE 'execution.rerun' END AS action,
       'execution' AS subject_type, execution.id AS subject_id,
       CASE WHEN execution.rerun_of IS NOT NULL THEN jsonb_build_object('of', execution.rerun_of) END AS detail
  FROM forebay.workflow_execution execution
 WHERE execution.depth = 0;
CREATE VIEW forebay.audit AS
SELECT activity.at, activity.workspace_id, activity.actor, activity.action, activity.subject_type, activity.subject_id,
       activity.detail
  FROM forebay.activity
 UNION ALL
SELECT start.at, start.workspace_id, start.actor, start.action, start.subject_type, start.subject_id, start.detail
  FROM forebay.execution_start start;

-- The change log: read by the feed of every server in commit-safe order, then pruned.
--
-- Unlogged: a crash of the database empties the log, and readers then have to read the current state again. A cursor is
-- (xid, seq). A sequence number alone would not do: it is drawn before its transaction commits. A reader at a higher
-- number would miss a transaction with a lower number that commits later.
CREATE UNLOGGED TABLE forebay.change_log (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Numbers of entries are drawn far apart; the changes of one entry get the numbers in between.
    seq bigint GENERATED ALWAYS AS IDENTITY (START 1048576 INCREMENT 1048576),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic text NOT NULL CHECK (topic = ANY (ARRAY['execution', 'nodes', 'job'])),
    op text NOT NULL CHECK (op = ANY (ARRAY['INSERT', 'UPDATE', 'DELETE'])),
    -- The rows that one statement changed in the same way, and the workspace of each row. Null: the row belongs to no
    -- workspace, and only a root key sees it.
    refs uuid[] NOT NULL,
    workspaces uuid[] NOT NULL,
    -- The new status of these executions; null if only their nodes changed.
    status text,
    -- A row of workflow_queue_projection as a whole: after this change and before it.
    record jsonb,
    old_record jsonb,
    PRIMARY KEY (xid, seq),
    CHECK (topic <> 'job' OR cardinality(refs) = 1)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Up to which transaction the log was pruned; one row. This table is unlogged too: a crash removes the row with the
-- log, which is how a reader notices the crash.
CREATE UNLOGGED TABLE forebay.change_log_pruned (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Entries of this transaction and older ones may be missing.
    pruned_xid xid8 NOT NULL
);
