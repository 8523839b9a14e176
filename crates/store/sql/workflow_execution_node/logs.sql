-- What an execution's nodes have to say: those that log ($2) and the items of loops whose items do ($3), with what they
-- said, and whatever failed, in the order in which they settled: $5 of them behind the first $4. What has settled keeps
-- its place.
SELECT node.node, node.iteration, node.attempt, CASE WHEN judged.logs THEN node.output END AS said, node.earlier,
       -- One that waits for its next attempt shows an error that is among the earlier ones, and a loop's is that of an
       -- item.
       CASE WHEN node.completed_at IS NOT NULL AND NOT judged.repeats THEN node.error END AS error,
       coalesce(node.completed_at, node.started_at) AS at
FROM forebay.workflow_execution_node node
CROSS JOIN LATERAL (
    SELECT node.node = ANY ($2::text[]) OR node.iteration > 0 AND node.node = ANY ($3::text[]) AS logs,
           node.iteration = 0 AND node.error IS NOT NULL AND EXISTS (
               SELECT FROM forebay.workflow_execution_node item
               WHERE item.execution_id = node.execution_id AND item.node = node.node AND item.iteration > 0
                 AND item.error ->> 'message'
                     = regexp_replace(node.error ->> 'message', '^item [0-9]+: ', '')) AS repeats
) judged
WHERE node.execution_id = $1::uuid
  AND (judged.logs AND node.output IS NOT NULL OR node.error IS NOT NULL OR node.earlier IS NOT NULL)
ORDER BY node.seq NULLS LAST, node.node, node.iteration
LIMIT $5::bigint OFFSET $4::bigint
