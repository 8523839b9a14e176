-- What may be performed at most once says so on its row, so that whoever ends its execution by force knows that it cannot be told
-- whether a call in flight took effect.
ALTER TABLE workflow_execution_node ADD COLUMN once boolean NOT NULL DEFAULT false;
