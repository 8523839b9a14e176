-- Claimed -> pending, if the start was certainly never sent to the engine. This does not count as an attempt. The item
-- is delayed by $3 s (0: ready now, at least at the rank from which claims read). A delayed item keeps its rank.
UPDATE forebay.execution_queue item
SET status = 'PENDING', stage = CASE WHEN $3::float8 > 0 THEN forebay.stage_delayed() ELSE forebay.stage_ready() END,
    available_at = clock_timestamp() + make_interval(secs => $3::float8),
    rank = CASE WHEN $3::float8 > 0 THEN item.rank
                ELSE greatest(item.rank, (SELECT mark.ready_from[item.priority]
                                            FROM forebay.claim_mark mark
                                           WHERE mark.workspace_id = item.workspace_id)) END,
    claim_number = NULL, claim_id = NULL, claimed_at = NULL, claimed_by = NULL
WHERE id = ANY ($1::uuid[])
  AND status = 'CLAIMED'
  AND claim_id = $2::uuid
RETURNING id, workspace_id
