-- Claimed -> pending after the engine refused it: an attempt, and a pause of $4 s. Whether there is
-- another attempt was decided by the kernel; the last one ends through `complete`.
UPDATE forebay.execution_queue
SET status = 'PENDING', stage = forebay.stage_delayed(), attempt_count = attempt_count + 1, last_error = $3::text,
    available_at = clock_timestamp() + make_interval(secs => $4::float8),
    claim_id = NULL, claimed_at = NULL, claimed_by = NULL
WHERE id = $1::uuid
  AND status = 'CLAIMED'
  AND claim_id = $2::uuid
RETURNING id, workspace_id, attempt_count
