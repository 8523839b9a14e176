-- Claimed items of these shards whose claimer has been silent for $2 s, or that have been claimed for $3
-- s whatever the claimer says: a new claim, the slot kept, the start repeated. Never an attempt. $6: the
-- caller's own heartbeats were steady long enough to call another dead. A death is told by `dead`.
WITH s AS MATERIALIZED (
    SELECT q.id, p.ended_at IS NOT NULL
             OR ($6::boolean AND coalesce(p.seen_at < clock_timestamp() - make_interval(secs => $2::float8), true)) AS dead
      FROM forebay.execution_queue q LEFT JOIN forebay.process p ON p.id = q.claimed_by
     WHERE q.shard = ANY ($1::smallint[]) AND q.stage = forebay.stage_slot() AND q.status = 'CLAIMED'
       AND (p.ended_at IS NOT NULL
            OR ($6::boolean AND (p.id IS NULL OR p.seen_at < clock_timestamp() - make_interval(secs => $2::float8))
                AND q.claimed_at < clock_timestamp() - make_interval(secs => $2::float8))
            OR q.claimed_at < clock_timestamp() - make_interval(secs => $3::float8))
     ORDER BY q.id LIMIT 500 FOR UPDATE OF q SKIP LOCKED)
UPDATE forebay.execution_queue q
SET claim_id = $4::uuid, claimed_by = $5::uuid, claimed_at = clock_timestamp(), in_doubt = true,
    takeover_count = takeover_count + CASE WHEN s.dead THEN 1 ELSE 0 END
FROM s
WHERE q.id = s.id
  AND q.status = 'CLAIMED'
RETURNING q.id, q.workspace_id, q.workflow_definition_id, q.attempt_count, q.takeover_count, s.dead
