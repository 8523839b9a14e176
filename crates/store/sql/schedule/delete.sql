-- A schedule goes, with its ticks; what it started stays. One that a definition made goes with it.
DELETE FROM forebay.schedule s
WHERE s.id = $1::uuid AND ($2::uuid IS NULL OR s.workspace_id = $2) AND NOT s.by_definition
RETURNING s.workspace_id
