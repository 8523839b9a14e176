-- Events that happened in a product, and the jobs that follow from them.

-- Appended by the API, by EMIT_EVENT, and by plain SQL from any program; never changed, but for how its handling went.
CREATE TABLE domain_events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    sequence bigint GENERATED ALWAYS AS IDENTITY,
    -- Null: no workspace's, or of one that does not exist yet.
    workspace_id uuid,
    stream_id uuid NOT NULL,
    stream_type text NOT NULL,
    stream_version int NOT NULL CHECK (stream_version >= 1),
    event_type text NOT NULL,
    event_data jsonb NOT NULL,
    event_metadata jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (sequence),
    UNIQUE (stream_id, stream_type, stream_version)
);
CREATE INDEX domain_events_by_type ON domain_events (event_type, sequence);
CREATE INDEX domain_events_by_workspace ON domain_events (workspace_id, sequence);

-- The job queue as its users know it: these columns, types and defaults are their contract. What is ours beside it
-- lives in tables of its own.
CREATE TABLE workflow_queue_projection (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    event_id uuid NOT NULL,
    event_type text NOT NULL,
    event_data jsonb NOT NULL,
    stream_id uuid NOT NULL,
    stream_type text NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    worker_id text,
    claimed_at timestamptz,
    workflow_id text,
    workflow_run_id text,
    completed_at timestamptz,
    failed_at timestamptz,
    error_message text,
    error_stack text,
    retry_count integer NOT NULL DEFAULT 0,
    result jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id),
    CHECK (status = ANY (ARRAY['pending', 'processing', 'completed', 'failed'])),
    UNIQUE (event_id)
);
CREATE INDEX workflow_queue_projection_status ON workflow_queue_projection (status, created_at);
CREATE INDEX workflow_queue_projection_stream ON workflow_queue_projection (stream_id, created_at);
CREATE INDEX workflow_queue_projection_created ON workflow_queue_projection (created_at);
