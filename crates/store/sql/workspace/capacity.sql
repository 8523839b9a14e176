-- What a living workspace has room for, and what waits: functions/lists.sql.
SELECT max_running, paused, running, ready, waits_for_key, waits_for_definition, delayed, failed, oldest_s
FROM forebay_r1.capacity($1::uuid, $2::bigint)
