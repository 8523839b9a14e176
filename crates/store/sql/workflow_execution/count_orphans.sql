-- How many runs in slots of these shards have a dead owner, by the rule of `adopt_orphans`; no more than $5 are counted.
SELECT count(*) FROM (
    SELECT 1 FROM execution_queue q
      JOIN workflow_execution e ON e.id = q.id
     WHERE q.shard = ANY ($1::smallint[]) AND q.stage = 5 AND e.status = 'RUNNING' AND e.engine = $4::text AND e.owner IS NOT NULL
       AND coalesce((SELECT p.ended_at IS NOT NULL
                         OR ($3::boolean AND p.seen_at < clock_timestamp() - make_interval(secs => $2::float8))
                       FROM process p WHERE p.id = e.owner), $3::boolean)
       AND e.semantics <= $6::int
     LIMIT $5::bigint) orphans
