-- A process looks after its share of the shards whether or not it has room; both facts are told by its heartbeat.
-- fb_beat_2 stays: processes of the previous release beat by it until they are replaced.
ALTER TABLE process
    -- It has room for new work, and claims for full owners as well.
    ADD COLUMN has_room boolean NOT NULL DEFAULT false,
    -- Runs of dead processes in its shards that it has no room for.
    ADD COLUMN waiting_runs int NOT NULL DEFAULT 0;
