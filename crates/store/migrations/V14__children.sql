-- Executions within executions: a child is a row of its own in its root's slot.

-- A root has depth 0 and counts its descendants; what they settled is its progress too. A root that ended with no descendants
-- has none to end.
ALTER TABLE workflow_execution
    ADD COLUMN parent_node text,
    ADD COLUMN parent_iteration int,
    ADD COLUMN parent_attempt int,
    ADD COLUMN depth smallint NOT NULL DEFAULT 0,
    ADD COLUMN descendants int NOT NULL DEFAULT 0,
    ADD COLUMN tree_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE workflow_execution ADD CONSTRAINT workflow_execution_parent CHECK (
    (parent IS NULL) = (parent_node IS NULL) AND (parent IS NULL) = (parent_iteration IS NULL)
    AND (parent IS NULL) = (parent_attempt IS NULL) AND (parent IS NULL) = (depth = 0)) NOT VALID;

-- One child for each attempt at a node, however often it is performed.
CREATE UNIQUE INDEX workflow_execution_child ON workflow_execution (parent, parent_node, parent_iteration, parent_attempt)
    WHERE parent IS NOT NULL;
-- What is to be ended with its parent.
CREATE INDEX workflow_execution_open_child ON workflow_execution (parent) WHERE parent IS NOT NULL AND completed_at IS NULL;

-- Lists are of roots: thousands of children are not walked over to find ten of them. (Not `parent IS NULL`: without statistics that
-- is taken for next to nothing, and the list is read whole and sorted.)
DROP INDEX workflow_execution_of_workspace, workflow_execution_of_definition, workflow_execution_of_all;
CREATE INDEX workflow_execution_of_workspace ON workflow_execution (workspace_id, status COLLATE "C", created_at, id)
    WHERE depth < 1;
CREATE INDEX workflow_execution_of_definition ON workflow_execution (workflow_definition_id, status COLLATE "C", created_at, id)
    WHERE depth < 1;
CREATE INDEX workflow_execution_of_all ON workflow_execution (status COLLATE "C", created_at, id) WHERE depth < 1;
