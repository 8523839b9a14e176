-- Work bounded by rows, and indexes that hold only what is looked for.

-- Deleted executions of which something is left: too much for the commit that deleted them. Nearly always empty.
CREATE TABLE retired_execution (
    id uuid PRIMARY KEY
);

DROP FUNCTION IF EXISTS fb_jobs_retire_1(float8, int);

-- What recovery looks for, and nothing else. Runs by their owner: a parked run has none, so what waits is not in it.
CREATE INDEX workflow_execution_owned ON workflow_execution (engine, owner) WHERE owner IS NOT NULL;
-- Deadlines that no owner keeps.
DROP INDEX workflow_execution_deadline;
CREATE INDEX workflow_execution_deadline ON workflow_execution (deadline_at) WHERE completed_at IS NULL AND owner IS NULL AND parent IS NULL;
-- Claims that are not yet a run: none while the claim itself begins the run.
CREATE INDEX execution_queue_claimed ON execution_queue (shard, id) WHERE status = 'CLAIMED';
-- Slots in the order in which the reconciler goes through them.
CREATE INDEX execution_queue_slot_in_order ON execution_queue (id) WHERE stage = 5;

-- Pending jobs by type: a worker of one type does not pass the others' jobs.
ALTER TABLE workflow_queue_job ADD COLUMN event_type text COLLATE "C";
UPDATE workflow_queue_job job SET event_type = row.event_type FROM workflow_queue_projection row WHERE row.id = job.id;
CREATE INDEX workflow_queue_job_of_type ON workflow_queue_job (event_type, pending_since, id) WHERE pending_since IS NOT NULL;
CREATE INDEX workflow_queue_job_of_workspace_type ON workflow_queue_job (workspace_id, event_type, pending_since, id)
    WHERE pending_since IS NOT NULL;

-- Events of one workspace by type, and those whose handling failed.
CREATE INDEX domain_events_of_workspace_type ON domain_events (workspace_id, event_type, sequence);
CREATE INDEX domain_events_trouble_of_workspace ON domain_events (workspace_id, sequence) WHERE processing_error IS NOT NULL;

DROP FUNCTION IF EXISTS fb_jobs_claim_1(uuid, text[], uuid, text, int, int);
