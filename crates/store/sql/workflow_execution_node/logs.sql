-- The logs of an execution, in the order in which the nodes settled, $5 entries after the first $4. They are the
-- messages of nodes that log ($2), the messages of items of loops whose items log ($3), and all errors. A settled node
-- keeps its position.
SELECT node.node, node.iteration, node.attempt, CASE WHEN flags.logs THEN node.output END AS message, node.earlier,
       -- A node that waits for its next attempt has an error that is also among the earlier ones; a loop's error is
       -- that of an item.
       CASE WHEN node.completed_at IS NOT NULL AND NOT flags.repeats THEN node.error END AS error,
       coalesce(node.completed_at, node.started_at) AS at
FROM forebay.workflow_execution_node node
CROSS JOIN LATERAL (
    SELECT node.node = ANY ($2::text[]) OR node.iteration > 0 AND node.node = ANY ($3::text[]) AS logs,
           node.iteration = 0 AND node.error IS NOT NULL AND EXISTS (
               SELECT FROM forebay.workflow_execution_node item
               WHERE item.execution_id = node.execution_id AND item.node = node.node AND item.iteration > 0
                 AND item.error ->> 'message'
                     = regexp_replace(node.error ->> 'message', '^item [0-9]+: ', '')) AS repeats
) flags
WHERE node.execution_id = $1::uuid
  AND (flags.logs AND node.output IS NOT NULL OR node.error IS NOT NULL OR node.earlier IS NOT NULL)
ORDER BY node.seq NULLS LAST, node.node, node.iteration
LIMIT $5::bigint OFFSET $4::bigint
