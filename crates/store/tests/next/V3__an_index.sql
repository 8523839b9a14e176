-- online
-- A synthetic next release, for tests of upgrades: an index on the largest table. Its first column is one that no
-- statement of this release names: an index of the workspace and the time lured the list of executions away from its own.
CREATE INDEX CONCURRENTLY IF NOT EXISTS workflow_execution_next_release
    ON forebay.workflow_execution (next_release, id);
