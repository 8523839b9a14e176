-- Events belong to workspaces: whatever a client can choose is a key only beside its workspace.
ALTER TABLE domain_events
    DROP CONSTRAINT domain_events_pkey,
    DROP CONSTRAINT domain_events_sequence_key,
    DROP CONSTRAINT domain_events_stream_id_stream_type_stream_version_key,
    ALTER COLUMN id SET NOT NULL,
    ADD PRIMARY KEY (sequence),
    -- The id comes first: a root key asks for an id alone.
    ADD CONSTRAINT domain_events_id UNIQUE NULLS NOT DISTINCT (id, workspace_id),
    ADD CONSTRAINT domain_events_stream UNIQUE NULLS NOT DISTINCT (stream_id, stream_type, workspace_id, stream_version);

-- One job for an event, which is known by its id and its workspace (null: none). The projection has no workspace: the key is here, and the
-- projection's own goes.
ALTER TABLE workflow_queue_job ADD COLUMN event_id uuid, ADD COLUMN event_workspace_id uuid;
UPDATE workflow_queue_job job SET event_id = row.event_id, event_workspace_id = event.workspace_id
  FROM workflow_queue_projection row LEFT JOIN domain_events event ON event.id = row.event_id
 WHERE row.id = job.id;
CREATE UNIQUE INDEX workflow_queue_job_event ON workflow_queue_job (event_id, event_workspace_id) NULLS NOT DISTINCT WHERE event_id IS NOT NULL;
ALTER TABLE workflow_queue_projection DROP CONSTRAINT workflow_queue_projection_event_id_key;
CREATE INDEX workflow_queue_projection_event ON workflow_queue_projection (event_id);

-- What makes derived event ids unpredictable; one row.
CREATE TABLE event_secret (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea NOT NULL CHECK (octet_length(secret) = 32)
);
INSERT INTO event_secret (secret) VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

DROP FUNCTION IF EXISTS fb_append_1(uuid[], uuid[], uuid[], text[], int[], text[], jsonb[], jsonb[]), fb_event_retry_1(uuid);

-- Events whose stored error is transient, for the loop that folds them again: the one that was tried longest ago comes first.
CREATE INDEX domain_events_to_fold ON domain_events (processing_failed_at)
    WHERE left(processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58']);
