-- Schedules with a tick to look at, the longest due first; one that was in trouble is due when it is to be tried again.
SELECT s.id, s.workspace_id, s.workflow_definition_id, s.input, s.revision
FROM forebay.schedule s
WHERE s.status = 'ACTIVE' AND greatest(s.next_at, s.retry_at) <= now()
ORDER BY greatest(s.next_at, s.retry_at), s.id
LIMIT $1::bigint
