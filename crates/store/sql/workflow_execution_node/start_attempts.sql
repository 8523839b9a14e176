-- Starts attempts at nodes: functions/node.sql.
SELECT held, status, label, attempt, fence, next_in_ms, error, begun
FROM forebay_r1.start_attempts($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::int[], $6::jsonb[])
ORDER BY attempt_at
