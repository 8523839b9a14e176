-- Marks a deleted definition as cleared: none of its items is in the ready stage any longer. This is not done in the
-- first $2 s after the deletion, because a start accepted at that moment may not be visible yet. If an item appears
-- even later, the claim fails it.
UPDATE forebay.workflow_definition
SET cleared_at = clock_timestamp()
WHERE id = $1::uuid
  AND deleted_at < clock_timestamp() - make_interval(secs => $2::float8)
  AND cleared_at IS NULL
