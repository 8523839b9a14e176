-- Claimed items of these shards whose claimer has been silent for $2 s, or that have been claimed for $3
-- s whatever the claimer says: a new claim, the slot kept, the start repeated. Never an attempt. $6: the
-- caller's own heartbeats were steady long enough to call another dead. A death is told by `dead`.
WITH stale AS MATERIALIZED (
    SELECT item.id, process.ended_at IS NOT NULL
             OR ($6::boolean
                 AND coalesce(process.seen_at < clock_timestamp() - make_interval(secs => $2::float8), true)) AS dead
      FROM forebay.execution_queue item LEFT JOIN forebay.process ON process.id = item.claimed_by
     WHERE item.shard = ANY ($1::smallint[]) AND item.stage = forebay.stage_slot() AND item.status = 'CLAIMED'
       AND (process.ended_at IS NOT NULL
            OR ($6::boolean
                AND (process.id IS NULL OR process.seen_at < clock_timestamp() - make_interval(secs => $2::float8))
                AND item.claimed_at < clock_timestamp() - make_interval(secs => $2::float8))
            OR item.claimed_at < clock_timestamp() - make_interval(secs => $3::float8))
     ORDER BY item.id LIMIT 500 FOR UPDATE OF item SKIP LOCKED)
UPDATE forebay.execution_queue item
SET claim_id = $4::uuid, claimed_by = $5::uuid, claimed_at = clock_timestamp(), in_doubt = true,
    takeover_count = takeover_count + CASE WHEN stale.dead THEN 1 ELSE 0 END
FROM stale
WHERE item.id = stale.id
  AND item.status = 'CLAIMED'
RETURNING item.id, item.workspace_id, item.workflow_definition_id, item.attempt_count, item.takeover_count, stale.dead
