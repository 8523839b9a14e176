-- What an execution's nodes have to say: those that log ($2) and the items of loops whose items do ($3), with what they
-- said, and whatever failed, in the order in which they settled: $5 of them behind the first $4. What has settled keeps
-- its place.
SELECT n.node, n.iteration, n.attempt, CASE WHEN l.logs THEN n.output END AS said, n.earlier,
       -- One that waits for its next attempt shows an error that is among the earlier ones, and a loop's is that of an
       -- item.
       CASE WHEN n.completed_at IS NOT NULL AND NOT l.repeats THEN n.error END AS error, coalesce(n.completed_at, n.started_at) AS at
FROM forebay.workflow_execution_node n
CROSS JOIN LATERAL (
    SELECT n.node = ANY ($2::text[]) OR n.iteration > 0 AND n.node = ANY ($3::text[]) AS logs,
           n.iteration = 0 AND n.error IS NOT NULL AND EXISTS (
               SELECT FROM forebay.workflow_execution_node i
               WHERE i.execution_id = n.execution_id AND i.node = n.node AND i.iteration > 0
                 AND i.error ->> 'message' = regexp_replace(n.error ->> 'message', '^item [0-9]+: ', '')) AS repeats
) l
WHERE n.execution_id = $1::uuid
  AND (l.logs AND n.output IS NOT NULL OR n.error IS NOT NULL OR n.earlier IS NOT NULL)
ORDER BY n.seq NULLS LAST, n.node, n.iteration
LIMIT $5::bigint OFFSET $4::bigint
