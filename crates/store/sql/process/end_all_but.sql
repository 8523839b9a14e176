-- Whoever holds the data directory's lock knows that every other process on it is gone.
UPDATE forebay.process SET ended_at = clock_timestamp(), died = true WHERE ended_at IS NULL AND id <> $1::uuid
