-- The states of the given nodes and iterations of a run, without outputs.
SELECT node.node, node.iteration, node.status, node.attempt, node.label, NULL::jsonb AS output, node.error,
       (extract(epoch FROM node.next_at - clock_timestamp()) * 1000)::bigint AS next_in_ms
FROM unnest($2::text[], $3::int[]) AS requested(node, iteration)
-- LIMIT 1: always a primary-key probe, never a scan.
CROSS JOIN LATERAL (
    SELECT * FROM forebay.workflow_execution_node node
     WHERE node.execution_id = $1::uuid AND node.node = requested.node AND node.iteration = requested.iteration
     LIMIT 1) node
