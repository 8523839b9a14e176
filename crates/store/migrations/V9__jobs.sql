-- From events to jobs: which events make one, and what is ours beside the projection's own columns. The triggers are in
-- functions/, like all that may be replaced.

-- How its handling went: the one thing about an event that may change.
ALTER TABLE domain_events
    ADD COLUMN processing_error text,
    ADD COLUMN processing_failed_at timestamptz,
    ADD CHECK ((processing_error IS NULL) = (processing_failed_at IS NULL));
CREATE INDEX domain_events_trouble ON domain_events (sequence) WHERE processing_error IS NOT NULL;

-- Which events make a job, and what runs it: a definition, or nothing of ours (external workers only).
CREATE TABLE event_binding (
    id uuid PRIMARY KEY,
    -- Null: for the whole platform.
    workspace_id uuid REFERENCES workspace,
    -- Exact, or a prefix: order.*
    event_type text NOT NULL CHECK (length(event_type) BETWEEN 1 AND 200),
    workflow_definition_id uuid REFERENCES workflow_definition,
    -- Made by that definition's `on: event`, and replaced when it is published again.
    by_definition boolean NOT NULL DEFAULT false,
    filter text,
    input jsonb,
    workflow_id text,
    lease_s int NOT NULL DEFAULT 900 CHECK (lease_s BETWEEN 1 AND 604800),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (NOT by_definition OR workflow_definition_id IS NOT NULL),
    -- Without a definition nothing of ours looks at these.
    CHECK (workflow_definition_id IS NOT NULL OR (filter IS NULL AND input IS NULL AND workflow_id IS NULL))
);
CREATE UNIQUE INDEX event_binding_type ON event_binding (event_type, workspace_id) NULLS NOT DISTINCT;
CREATE INDEX event_binding_of_definition ON event_binding (workflow_definition_id) WHERE workflow_definition_id IS NOT NULL;
CREATE INDEX event_binding_of_workspace ON event_binding (workspace_id, id);

-- Beside each row of the projection, kept by its triggers.
CREATE TABLE workflow_queue_job (
    id uuid PRIMARY KEY,
    -- Of its event, if that exists; null: the platform's.
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
    -- Is being worked on: by whom (sql, api, ours), under which claim, until when unless it is heard of. An ended one keeps the
    -- claim, so that an end that is told twice is known.
    held text CHECK (held IN ('sql', 'api', 'ours')),
    claim_id uuid,
    lease_until timestamptz,
    -- Failed then, and is to be tried again.
    retry_from timestamptz,
    CHECK (held IS DISTINCT FROM 'sql' OR claim_id IS NULL),
    CHECK (pending_since IS NULL OR (held IS NULL AND claim_id IS NULL AND retry_from IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX workflow_queue_job_pending ON workflow_queue_job (pending_since, id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_pending_of ON workflow_queue_job (workspace_id, pending_since, id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_binding ON workflow_queue_job (binding_id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_due ON workflow_queue_job (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX workflow_queue_job_lease ON workflow_queue_job (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX workflow_queue_job_ours ON workflow_queue_job (id) WHERE held = 'ours';
CREATE INDEX workflow_queue_job_claim ON workflow_queue_job (claim_id) WHERE claim_id IS NOT NULL;
CREATE INDEX workflow_queue_job_retry ON workflow_queue_job (retry_from) WHERE retry_from IS NOT NULL;
