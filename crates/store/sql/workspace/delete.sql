-- Marks a workspace deleted: nothing of it is claimed any more, its keys open nothing. The promoter ends what waits
-- and asks what runs to end.
UPDATE forebay.workspace SET deleted_at = clock_timestamp() WHERE id = $1::uuid AND deleted_at IS NULL RETURNING name
