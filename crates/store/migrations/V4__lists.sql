-- What lists, counts and keys need. Lists walk an index in their own order and stop at their page,
-- whatever the filter; counts stop at a thousand.

-- Newest first by the database's clock. The status comes before the time, so that a rare status is
-- found among many rows; a list of every status is one short walk each.
CREATE INDEX workflow_execution_of_workspace ON workflow_execution (workspace_id, status, created_at, id);
CREATE INDEX workflow_execution_of_definition ON workflow_execution (workflow_definition_id, status, created_at, id);
CREATE INDEX workflow_execution_of_all ON workflow_execution (status, created_at, id);

-- What a workspace has delayed, and its dead letters; other work needs the same indexes. Their
-- predicates name only the stage, like those of V1.
CREATE INDEX IF NOT EXISTS execution_queue_delayed ON execution_queue (shard, workspace_id, workflow_definition_id)
    WHERE stage = 1;
CREATE INDEX IF NOT EXISTS execution_queue_letter_by_workspace ON execution_queue (workspace_id, id) WHERE stage = 9;

DROP INDEX activity_by_workspace;
CREATE INDEX activity_of_workspace ON activity (workspace_id, at, id);
CREATE INDEX activity_of_subject ON activity (subject_id, at, id);
CREATE INDEX activity_of_all ON activity (at, id);

-- Keys made before there were scopes could do everything in their workspace, and still can.
ALTER TABLE api_key
    ADD COLUMN scopes text[] NOT NULL DEFAULT '{read,run,manage}'
        CHECK (scopes <@ '{read,run,manage}' AND cardinality(scopes) > 0),
    -- How the key begins, for people who look for it; older keys have none.
    ADD COLUMN prefix text CHECK (length(prefix) <= 12),
    ADD COLUMN expires_at timestamptz,
    -- To the minute.
    ADD COLUMN last_used_at timestamptz;
DROP INDEX api_key_by_workspace;
CREATE INDEX api_key_of_workspace ON api_key (workspace_id, id) WHERE revoked_at IS NULL;
CREATE INDEX api_key_of_all ON api_key (id) WHERE revoked_at IS NULL;
