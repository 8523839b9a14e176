-- Secrets of workspaces: sealed before they come here, one row a name, the newest version alone. Both seals are
-- bound to workspace, name and version, so a row opens nowhere but in its own place.
CREATE TABLE secret (
    workspace_id uuid NOT NULL REFERENCES workspace,
    name text NOT NULL CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$'),
    version int NOT NULL CHECK (version >= 1),
    -- The value under its data key, and that key under an outer one, which the configuration knows by this id.
    value_sealed bytea NOT NULL CHECK (length(value_sealed) <= 66000),
    key_sealed bytea NOT NULL CHECK (length(key_sealed) <= 200),
    key_id text NOT NULL CHECK (length(key_id) BETWEEN 1 AND 32),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When this version was set; sealing its key anew does not change it.
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who set this version.
    created_by text NOT NULL,
    PRIMARY KEY (workspace_id, name)
);
