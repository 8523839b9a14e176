-- Pauses or resumes; the trigger takes the shard's lock, so that no claim straddles it. No row: it is so already.
UPDATE forebay.workspace
SET paused = $2::boolean
WHERE id = $1::uuid AND deleted_at IS NULL AND paused <> $2::boolean
RETURNING id
