-- Deletes a schedule with its ticks; its executions stay. A schedule that a definition made is deleted only with the
-- definition.
DELETE FROM forebay.schedule
WHERE schedule.id = $1::uuid AND ($2::uuid IS NULL OR schedule.workspace_id = $2) AND NOT schedule.by_definition
RETURNING schedule.workspace_id
