-- When definitions start by themselves, and what became of each tick.

CREATE TABLE schedule (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspace,
    workflow_definition_id uuid NOT NULL REFERENCES workflow_definition,
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
CREATE INDEX schedule_due ON schedule (greatest(next_at, retry_at), id) WHERE status = 'ACTIVE';
CREATE INDEX schedule_buffered ON schedule (id) WHERE status = 'ACTIVE' AND buffered_at IS NOT NULL;
CREATE INDEX schedule_of_workspace ON schedule (workspace_id, id);
CREATE INDEX schedule_of_definition ON schedule (workflow_definition_id);
CREATE INDEX schedule_ended ON schedule (updated_at) WHERE status = 'ENDED';
CREATE UNIQUE INDEX schedule_of_document ON schedule (workflow_definition_id, cron, timezone) WHERE by_definition;

-- One row a tick, ever: written in the transaction that starts its execution and moves the schedule on.
CREATE TABLE schedule_tick (
    schedule_id uuid NOT NULL REFERENCES schedule ON DELETE CASCADE,
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
CREATE INDEX schedule_tick_started ON schedule_tick (schedule_id, tick_at) WHERE status = 'STARTED';

-- Jobs are taken by turns of their bindings; one whose workspace is full has none until then.
ALTER TABLE event_binding ADD COLUMN full_until timestamptz;
DROP INDEX workflow_queue_job_due;
DROP INDEX workflow_queue_job_of_binding;
CREATE INDEX workflow_queue_job_of_binding ON workflow_queue_job (binding_id, due_at, id) WHERE pending_since IS NOT NULL;
