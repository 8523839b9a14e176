-- Events to be judged, in the order in which they were noted, with what must hold of them.
SELECT c.id AS candidate, c.execution_id, c.node, c.iteration, a.match,
       d.id, d.event_type, d.event_data, d.event_metadata, d.stream_id, d.stream_type, d.stream_version, d.created_at
FROM workflow_execution_candidate c
JOIN workflow_execution_ask a ON a.execution_id = c.execution_id AND a.node = c.node AND a.iteration = c.iteration
JOIN domain_events d ON d.id = c.event_id
WHERE a.status = 'OPEN'
  AND a.event_type = d.event_type
ORDER BY c.id
LIMIT $1::bigint
