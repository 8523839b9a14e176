-- Schedules with a tick to look at, the longest due first; one that was in trouble is due when it is to be tried again.
SELECT schedule.id, schedule.workspace_id, schedule.workflow_definition_id, schedule.input, schedule.revision
FROM forebay.schedule
WHERE schedule.status = 'ACTIVE' AND greatest(schedule.next_at, schedule.retry_at) <= now()
ORDER BY greatest(schedule.next_at, schedule.retry_at), schedule.id
LIMIT $1::bigint
