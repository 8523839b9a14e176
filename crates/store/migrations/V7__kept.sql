-- A node whose end was taken over from the execution that this one repeats says from which.
ALTER TABLE workflow_execution_node ADD COLUMN kept_from uuid;
