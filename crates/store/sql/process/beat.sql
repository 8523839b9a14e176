-- Heartbeat, share-out and news in one call: functions/beat.sql.
SELECT what, shard, id, runs
FROM forebay_r1.heartbeat($1::uuid, $2::boolean, $3::boolean, $4::int, $5::float8, $6::float8)
