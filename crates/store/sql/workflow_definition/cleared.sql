-- No more to move. Not at once: a start accepted at the moment of the deletion may not have been seen yet. One that
-- comes later still is failed by the claim, when its turn comes.
UPDATE forebay.workflow_definition
SET cleared_at = clock_timestamp()
WHERE id = $1::uuid
  AND deleted_at < clock_timestamp() - make_interval(secs => $2::float8)
  AND cleared_at IS NULL
