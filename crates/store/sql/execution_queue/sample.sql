-- Counts the items of a shard, each count up to a bound: functions/sample.sql.
SELECT ready, delayed, for_key, for_definition, slots, slots_limit, oldest_for_turn_s, oldest_for_slot_s
FROM forebay_r1.sample_shard($1::smallint, $2::int, $3::int)
