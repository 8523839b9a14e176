-- Takes a node for an attempt: functions/node.sql.
SELECT held, status, label, attempt, fence, next_in_ms, error, again AS begun
FROM forebay_r1.take_node($1::uuid, $2::uuid, $3::bigint, $4::text, $5::int, $6::jsonb, false)
