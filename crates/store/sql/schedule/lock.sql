-- A schedule for whoever triggers it: waits for a tick of it that is being taken.
SELECT s.workspace_id, s.revision, clock_timestamp() AS now
FROM forebay.schedule s
WHERE s.id = $1::uuid AND ($2::uuid IS NULL OR s.workspace_id = $2)
FOR UPDATE
