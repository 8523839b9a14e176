-- online
-- A synthetic next release, for tests of upgrades: an index on the largest table. Its first column is one that no
-- statement of this release names: with an index by workspace and time, the planner would use it for the list of
-- executions.
CREATE INDEX CONCURRENTLY IF NOT EXISTS workflow_execution_next_release
    ON forebay.workflow_execution (next_release, id);
