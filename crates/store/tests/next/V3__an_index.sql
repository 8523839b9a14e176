-- online
-- A synthetic next release, for tests of upgrades: an index on the largest table.
CREATE INDEX CONCURRENTLY IF NOT EXISTS workflow_execution_next_release
    ON forebay.workflow_execution (workspace_id, created_at);
