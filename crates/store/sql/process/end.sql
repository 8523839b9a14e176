-- Marks a process as ended at shutdown; its shards are free immediately.
WITH ended AS (UPDATE forebay.process SET ended_at = clock_timestamp() WHERE id = $1::uuid AND ended_at IS NULL)
UPDATE forebay.shard_owner SET owner = NULL, until = '-infinity' WHERE owner = $1::uuid
