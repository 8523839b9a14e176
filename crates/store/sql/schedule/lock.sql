-- Locks a schedule for a manual run. If another transaction is firing a tick of it, this waits.
SELECT schedule.workspace_id, schedule.revision, clock_timestamp() AS now
FROM forebay.schedule
WHERE schedule.id = $1::uuid AND ($2::uuid IS NULL OR schedule.workspace_id = $2)
FOR UPDATE
