-- Heartbeat, share-out and news in one call: functions/beat.sql.
SELECT what, shard, id FROM fb_beat_2($1::uuid, $2::boolean, $3::float8, $4::float8)
