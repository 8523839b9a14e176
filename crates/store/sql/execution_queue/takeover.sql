-- Takes over claimed items of these shards: each gets a new claim and keeps its slot. The caller sends the start again,
-- which does not count as an attempt. An item is taken over if its claimer ended, has been silent for $2 s, or claimed
-- it more than $3 s ago, even if the claimer is alive.
--
-- $6: the caller's own heartbeats were steady long enough to declare another process dead.
-- dead: the claimer is dead.
WITH stale AS MATERIALIZED (
    SELECT item.id, process.ended_at IS NOT NULL
             OR ($6::boolean
                 AND coalesce(process.heartbeat_at < clock_timestamp() - make_interval(secs => $2::float8), true))
             AS dead
      FROM forebay.execution_queue item LEFT JOIN forebay.process ON process.id = item.claimed_by
     WHERE item.shard = ANY ($1::smallint[]) AND item.stage = forebay.stage_slot() AND item.status = 'CLAIMED'
       AND (process.ended_at IS NOT NULL
            OR ($6::boolean
                AND (process.id IS NULL OR process.heartbeat_at < clock_timestamp() - make_interval(secs => $2::float8))
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
