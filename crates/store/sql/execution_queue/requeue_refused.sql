-- Claimed -> pending, because the engine refused the item. The refusal counts as an attempt, and the item is delayed by
-- $4 s. The kernel decided that an attempt is left. After the last attempt, the item ends through `complete` instead.
UPDATE forebay.execution_queue
SET status = 'PENDING', stage = forebay.stage_delayed(), attempt_count = attempt_count + 1, last_error = $3::text,
    available_at = clock_timestamp() + make_interval(secs => $4::float8),
    claim_number = NULL, claim_id = NULL, claimed_at = NULL, claimed_by = NULL
WHERE id = $1::uuid
  AND status = 'CLAIMED'
  AND claim_id = $2::uuid
RETURNING id, workspace_id, attempt_count
