-- Pauses or resumes a workspace. The trigger on the table takes the shard's lock, so no claim overlaps the change.
-- Returns no row if nothing changed.
UPDATE forebay.workspace
SET paused = $2::boolean
WHERE id = $1::uuid AND deleted_at IS NULL AND paused <> $2::boolean
RETURNING id
