-- The capacity and the backlog of a workspace that is not deleted: functions/lists.sql.
SELECT max_running, paused, running, ready, waits_for_key, waits_for_definition, delayed, failed, oldest_s
FROM forebay_r1.capacity($1::uuid, $2::bigint)
