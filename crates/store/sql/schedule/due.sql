-- Schedules with a due tick, the longest due first. After an error, a schedule is not due before its backoff is over.
SELECT schedule.id, schedule.workspace_id, schedule.workflow_definition_id, schedule.input, schedule.revision
FROM forebay.schedule
WHERE schedule.status = 'ACTIVE' AND greatest(schedule.next_at, schedule.retry_at) <= now()
ORDER BY greatest(schedule.next_at, schedule.retry_at), schedule.id
LIMIT $1::bigint
