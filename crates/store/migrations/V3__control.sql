-- Control over what waits and runs: forced ends, deletions that are carried through, dead letters,
-- and a limit to what may wait.

-- Set together with the epoch that fences the owner out: whoever owns the run next, the same process
-- or another, ends it instead of going on.
ALTER TABLE workflow_execution ADD COLUMN terminate_requested_at timestamptz;

-- A deleted definition's ready items have been moved out of its workspace's way.
ALTER TABLE workflow_definition ADD COLUMN cleared_at timestamptz;
CREATE INDEX workflow_definition_clearing ON workflow_definition (workspace_id)
    WHERE deleted_at IS NOT NULL AND cleared_at IS NULL;

-- Delayed items by whom they wait for: found when that is deleted, counted when the backlog is.
CREATE INDEX execution_queue_delayed ON execution_queue (shard, workspace_id, workflow_definition_id) WHERE stage = 1;

-- The dead letter: of all, of a workspace, of a definition.
CREATE INDEX execution_queue_letter ON execution_queue (id) WHERE stage = 9;
CREATE INDEX execution_queue_letter_by_workspace ON execution_queue (workspace_id, id) WHERE stage = 9;
CREATE INDEX execution_queue_letter_by_definition ON execution_queue (workflow_definition_id, id) WHERE stage = 9;

-- What was counted of a backlog, and how many starts of limited workspaces had arrived by then. A
-- hint for enqueue (functions/backlog.sql): a row that is missing or old costs a count.
CREATE TABLE backlog (
    workspace_id uuid PRIMARY KEY,
    counted int NOT NULL DEFAULT 0 CHECK (counted >= 0),
    arrivals bigint NOT NULL DEFAULT 0,
    counted_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 20);
INSERT INTO backlog (workspace_id) SELECT id FROM workspace;
-- Outside of transactions, so that nobody waits for anybody to count an arrival.
CREATE SEQUENCE backlog_arrivals;
