-- A schedule for whoever triggers it: waits for a tick of it that is being taken.
SELECT schedule.workspace_id, schedule.revision, clock_timestamp() AS now
FROM forebay.schedule
WHERE schedule.id = $1::uuid AND ($2::uuid IS NULL OR schedule.workspace_id = $2)
FOR UPDATE
