-- Requests: what was requested of a run and its owner has not seen yet (forebay.run_request). The caller of each
-- function has locked the rows of the executions, so a run has at most one owner and one set of requests at a time.

-- Wakes a run, whether it has an owner or is parked. Returns its engine; null: it is not running.
CREATE OR REPLACE FUNCTION forebay_r1.wake_run(p_holder uuid) RETURNS text
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    INSERT INTO forebay.run_request AS known (execution_id, root, engine, owner, wake_at)
    SELECT execution.id, coalesce(execution.root, execution.id), execution.engine, execution.owner, clock_timestamp()
      FROM forebay.workflow_execution execution WHERE execution.id = p_holder AND execution.status = 'RUNNING'
    ON CONFLICT (execution_id) DO UPDATE
       SET owner = excluded.owner, wake_at = least(known.wake_at, excluded.wake_at)
    RETURNING known.engine
$fn$;

-- Parks runs: they have no owner until p_park_ms is over, something arrives for them, or their deadline has passed. An
-- earlier wake_at stays, so that a signal or cancel that arrived meanwhile is not lost. The deadline also wakes a run,
-- so that it can end in time.
CREATE OR REPLACE FUNCTION forebay_r1.park_runs(p_ids uuid[], p_park_ms bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
BEGIN
    UPDATE forebay.workflow_execution execution SET owner = NULL, owner_epoch = execution.owner_epoch + 1
     WHERE execution.id = ANY (p_ids) AND execution.status = 'RUNNING';
    UPDATE forebay.execution_queue item SET owner = NULL
     WHERE item.id = ANY (p_ids) AND item.status = 'DISPATCHED';
    INSERT INTO forebay.run_request AS known (execution_id, root, engine, wake_at)
    SELECT execution.id, coalesce(execution.root, execution.id), execution.engine,
           least(execution.deadline_at, clock_timestamp() + make_interval(secs => parked.ms / 1000.0))
      FROM (SELECT run.id, min(run.park_ms) AS ms FROM unnest(p_ids, p_park_ms) AS run(id, park_ms)
             GROUP BY run.id) parked
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.workflow_execution stored
                          WHERE stored.id = parked.id AND stored.status = 'RUNNING'
                          LIMIT 1) execution
    ON CONFLICT (execution_id) DO UPDATE SET owner = NULL, wake_at = least(known.wake_at, excluded.wake_at);
END $fn$;

-- A process resumes a run: the queue item names it, and its requests wait for it. Wakes are over, because the new
-- owner reads everything that is stored about the run.
CREATE OR REPLACE FUNCTION forebay_r1.set_run_owner(p_id uuid, p_owner uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
BEGIN
    UPDATE forebay.execution_queue item SET owner = p_owner WHERE item.id = p_id AND item.status = 'DISPATCHED';
    DELETE FROM forebay.run_request request WHERE request.execution_id = p_id AND NOT request.ends;
    UPDATE forebay.run_request request SET owner = p_owner, wake_at = NULL
     WHERE request.execution_id = p_id AND request.ends;
END $fn$;
