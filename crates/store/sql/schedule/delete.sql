-- A schedule goes, with its ticks; what it started stays. One that a definition made goes with it.
DELETE FROM forebay.schedule
WHERE schedule.id = $1::uuid AND ($2::uuid IS NULL OR schedule.workspace_id = $2) AND NOT schedule.by_definition
RETURNING schedule.workspace_id
