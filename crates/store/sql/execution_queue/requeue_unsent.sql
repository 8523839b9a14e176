-- Claimed -> pending, if the start was certainly never sent to the engine. This does not count as an attempt. The item
-- is delayed by $3 s (0: ready now).
UPDATE forebay.execution_queue
SET status = 'PENDING', stage = CASE WHEN $3::float8 > 0 THEN forebay.stage_delayed() ELSE forebay.stage_ready() END,
    available_at = clock_timestamp() + make_interval(secs => $3::float8),
    claim_id = NULL, claimed_at = NULL, claimed_by = NULL
WHERE id = ANY ($1::uuid[])
  AND status = 'CLAIMED'
  AND claim_id = $2::uuid
RETURNING id, workspace_id
