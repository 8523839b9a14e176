-- A binding goes; jobs that it made stay. One that a definition made goes with it.
DELETE FROM forebay.event_binding b
WHERE b.id = $1::uuid AND ($2::uuid IS NULL OR b.workspace_id = $2) AND NOT b.by_definition
RETURNING b.workspace_id, b.event_type
