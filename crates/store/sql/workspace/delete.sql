-- Marks a workspace deleted. Its items are no longer claimed, and its keys stop working. The promoter fails its queued
-- items and requests the cancellation of its running executions.
UPDATE forebay.workspace SET deleted_at = clock_timestamp() WHERE id = $1::uuid AND deleted_at IS NULL RETURNING name
