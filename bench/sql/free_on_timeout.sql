-- A wrong recovery: the items of a silent process go back to PENDING, and their slots are freed although the runs may
-- be alive.
CREATE OR REPLACE FUNCTION chaos_recover(silent_s float8) RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
    WITH s AS MATERIALIZED (
        SELECT e.id FROM execution_queue q
          JOIN workflow_execution e ON e.id = q.id
          JOIN process p ON p.id = coalesce(e.owner, q.claimed_by)
         WHERE q.stage = 5 AND p.ended_at IS NULL
           AND p.heartbeat_at < clock_timestamp() - make_interval(secs => silent_s)
           FOR UPDATE OF e, q SKIP LOCKED),
    e AS (
        UPDATE workflow_execution e
           SET status = 'PENDING', owner = NULL, started_at = NULL, owner_epoch = owner_epoch + 1
          FROM s WHERE e.id = s.id AND e.status = 'RUNNING'),
    q AS (
        UPDATE execution_queue q
           SET status = 'PENDING', stage = 0, claim_number = NULL, claim_id = NULL, claimed_by = NULL,
               claimed_at = NULL, owner = NULL, dispatched_at = NULL,
               rank = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
          FROM s WHERE q.id = s.id RETURNING q.id)
    SELECT count(*) FROM q
$$;
