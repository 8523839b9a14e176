-- Declares every other process dead. Only the process that holds the lock of the data directory may call this.
UPDATE forebay.process SET ended_at = clock_timestamp(), died = true WHERE ended_at IS NULL AND id <> $1::uuid
