-- Some nodes and iterations of a run as they stand, without what they produced.
SELECT n.node, n.iteration, n.status, n.attempt, n.label, NULL::jsonb AS output, n.error,
       (extract(epoch FROM n.next_at - clock_timestamp()) * 1000)::bigint AS next_in_ms
FROM unnest($2::text[], $3::int[]) AS t(node, iteration)
-- LIMIT 1: always a primary-key probe, never a scan.
CROSS JOIN LATERAL (
    SELECT * FROM forebay.workflow_execution_node n
     WHERE n.execution_id = $1::uuid AND n.node = t.node AND n.iteration = t.iteration LIMIT 1) n
