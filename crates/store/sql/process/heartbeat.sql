-- Stores a heartbeat, and returns the process's shards and everything that is new for it: functions/heartbeat.sql.
SELECT kind, shard, id, runs
FROM forebay_r1.heartbeat($1::uuid, $2::boolean, $3::boolean, $4::int, $5::float8, $6::float8)
