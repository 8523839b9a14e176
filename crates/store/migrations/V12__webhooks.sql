-- Webhooks: who is told when executions end, and the addresses that start one.

-- Who is told.
CREATE TABLE webhook (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspace,
    url text NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    -- Which ends.
    events text[] NOT NULL CHECK (cardinality(events) BETWEEN 1 AND 4
        AND events <@ ARRAY['COMPLETED', 'FAILED', 'CANCELED', 'TIMED_OUT']),
    -- Null: of every definition.
    workflow_definition_id uuid REFERENCES workflow_definition,
    description text CHECK (length(description) <= 500),
    -- Nothing was taken since then; null: the last was, or there was none.
    failing_since timestamptz,
    disabled_at timestamptz,
    disabled_reason text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
CREATE INDEX webhook_of_workspace ON webhook (workspace_id, id);
-- What every end looks at.
CREATE INDEX webhook_live ON webhook (workspace_id) WHERE disabled_at IS NULL;

-- What messages are signed with, sealed as secrets are; the newest version, and the one before while it is still good.
CREATE TABLE webhook_secret (
    webhook_id uuid NOT NULL REFERENCES webhook ON DELETE CASCADE,
    version int NOT NULL CHECK (version >= 1),
    workspace_id uuid NOT NULL,
    value_sealed bytea NOT NULL CHECK (length(value_sealed) <= 200),
    key_sealed bytea NOT NULL CHECK (length(key_sealed) <= 200),
    key_id text NOT NULL CHECK (length(key_id) BETWEEN 1 AND 32),
    -- Null: the newest.
    ends_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (webhook_id, version)
);
CREATE UNIQUE INDEX webhook_secret_newest ON webhook_secret (webhook_id) WHERE ends_at IS NULL;

-- One end, told to one webhook. Added by the transaction that ends the execution, which must not fail because a webhook is being
-- deleted: no foreign key.
CREATE TABLE webhook_delivery (
    id uuid PRIMARY KEY,
    webhook_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    event text NOT NULL,
    status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENDING', 'DELIVERED', 'FAILED')),
    -- Pending: when it is sent. Sending: from when on another may take it over.
    due_at timestamptz,
    claim_id uuid,
    -- How often it was sent, or was about to be when its sender died.
    attempts int NOT NULL DEFAULT 0,
    -- Of the last attempt.
    last_status int,
    last_error text CHECK (length(last_error) <= 1000),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Tried since: made, or asked for again.
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    UNIQUE (webhook_id, execution_id),
    CHECK ((status IN ('PENDING', 'SENDING')) = (due_at IS NOT NULL)),
    CHECK ((status = 'SENDING') = (claim_id IS NOT NULL)),
    CHECK ((status IN ('DELIVERED', 'FAILED')) = (ended_at IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX webhook_delivery_due ON webhook_delivery (workspace_id, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_delivery_oldest ON webhook_delivery (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_delivery_sending ON webhook_delivery (workspace_id) WHERE status = 'SENDING';
CREATE INDEX webhook_delivery_of_webhook ON webhook_delivery (webhook_id, created_at, id);
CREATE INDEX webhook_delivery_created ON webhook_delivery (created_at);

-- An address that starts a definition: made by its `on: webhook` when it is published.
CREATE TABLE hook (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspace,
    workflow_definition_id uuid NOT NULL UNIQUE REFERENCES workflow_definition,
    rule jsonb NOT NULL,
    -- The token as a hash, and how it begins; null: none was made, or it was revoked.
    token_hash bytea UNIQUE,
    token_prefix text,
    -- The one before, while it is still good.
    previous_hash bytea UNIQUE,
    previous_until timestamptz,
    rotated_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((token_hash IS NULL) = (token_prefix IS NULL)),
    CHECK ((previous_hash IS NULL) = (previous_until IS NULL))
);
CREATE INDEX hook_of_workspace ON hook (workspace_id, id);

-- What a workspace that reads its jobs begins with, so that it pays for its own and not for everybody's.
CREATE INDEX workflow_queue_job_of_workspace ON workflow_queue_job (workspace_id, id);
