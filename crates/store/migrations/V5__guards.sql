-- A guard names the status it leaves beside an id, and statistics of a quiet moment say that next to
-- nothing is RUNNING: the planner then walked every entry of that status, dead ones included, instead
-- of probing the primary key. With a collation of their own these indexes serve only who asks for it:
-- the lists.
DROP INDEX workflow_execution_of_workspace, workflow_execution_of_definition, workflow_execution_of_all;
CREATE INDEX workflow_execution_of_workspace ON workflow_execution (workspace_id, status COLLATE "C", created_at, id);
CREATE INDEX workflow_execution_of_definition ON workflow_execution (workflow_definition_id, status COLLATE "C", created_at, id);
CREATE INDEX workflow_execution_of_all ON workflow_execution (status COLLATE "C", created_at, id);
