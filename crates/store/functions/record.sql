-- Records what runs of one process did: nodes started, waiting or settled, runs parked or ended,
-- many runs in one commit. Returns a row per run: whether this process still held it, and what
-- its end freed.
--
-- The fence: the execution row is locked and must name this owner, this epoch and RUNNING. An
-- unlocked check would let a zombie's fact in after its successor had read the rows. A settled
-- node is never changed again, so the whole call may be repeated.
--
-- Facts come as parallel arrays; r_ runs, f_ facts of nodes (in the order in which they happened),
-- e_ ends of runs. f_runs and e_runs say whose they are by its place among the runs, from 1: a call
-- may bring the same execution twice, from a process that lost it and took it up again, and what
-- the older run says is refused with it. A run to be parked gives r_park.
CREATE OR REPLACE FUNCTION fb_record_2(
    p_process uuid, r_ids uuid[], r_epochs bigint[], r_park boolean[],
    f_runs int[], f_nodes text[], f_iterations int[], f_statuses text[], f_attempts int[], f_next_in_ms bigint[],
    f_labels text[], f_inputs jsonb[], f_outputs jsonb[], f_errors jsonb[],
    e_runs int[], e_outcomes text[], e_outputs jsonb[], e_errors jsonb[], p_actor text)
RETURNS TABLE (run bigint, held boolean, ended boolean, workspace uuid, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    held bigint[];
    ends record;
BEGIN
    SELECT coalesce(array_agg(e.ord), '{}') INTO held FROM (
        SELECT t.ord FROM unnest(r_ids, r_epochs) WITH ORDINALITY AS t(id, epoch, ord)
          JOIN workflow_execution e ON e.id = t.id
         WHERE e.owner = p_process AND e.owner_epoch = t.epoch AND e.status = 'RUNNING'
         ORDER BY e.id FOR UPDATE OF e) e;

    WITH f AS MATERIALIZED (
        SELECT f.*, e.id, e.workspace_id,
               jsonb_build_object('attempt', f.attempt - 1, 'at', clock_timestamp(), 'error', f.error) AS failed,
               CASE WHEN f.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')
                    THEN e.last_seq + row_number() OVER (
                         PARTITION BY e.id, f.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')
                         ORDER BY f.ord) END AS seq
          FROM unnest(f_runs, f_nodes, f_iterations, f_statuses, f_attempts, f_next_in_ms, f_labels, f_inputs, f_outputs, f_errors)
               WITH ORDINALITY AS f(run, node, iteration, status, attempt, next_in_ms, label, input, output, error, ord)
          JOIN workflow_execution e ON e.id = r_ids[f.run]
         WHERE f.run = ANY (held)),
    n AS (
        INSERT INTO workflow_execution_node AS n (execution_id, node, iteration, workspace_id, status, attempt, seq, label,
            next_at, input, output, error, earlier, started_at, completed_at, duration_ms)
        SELECT f.id, f.node, f.iteration, f.workspace_id, f.status, f.attempt, f.seq, f.label,
               clock_timestamp() + make_interval(secs => f.next_in_ms / 1000.0), f.input, f.output, f.error,
               CASE WHEN f.status = 'RETRYING' THEN jsonb_build_array(f.failed) END,
               CASE WHEN f.status IN ('SKIPPED', 'CANCELED') THEN NULL ELSE clock_timestamp() END,
               CASE WHEN f.seq IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN f.seq IS NOT NULL THEN 0 END
          FROM f ORDER BY f.id, f.ord
        ON CONFLICT (execution_id, node, iteration) DO UPDATE
           SET status = excluded.status, attempt = excluded.attempt, seq = excluded.seq, label = excluded.label,
               next_at = excluded.next_at, input = coalesce(excluded.input, n.input), output = excluded.output,
               error = excluded.error, completed_at = excluded.completed_at,
               earlier = CASE WHEN excluded.status = 'RETRYING' AND excluded.attempt > n.attempt
                    THEN jsonb_path_query_array(coalesce(n.earlier, '[]') || excluded.earlier, '$[last - 9 to last]')
                    ELSE coalesce(n.earlier, excluded.earlier) END,
               duration_ms = CASE WHEN excluded.completed_at IS NOT NULL
                    THEN (extract(epoch FROM clock_timestamp() - n.started_at) * 1000)::bigint END
         WHERE n.status IN ('PENDING', 'RUNNING', 'RETRYING')
        RETURNING n.execution_id, n.seq)
    -- Only what was stored counts: a repeated or late fact is no progress.
    UPDATE workflow_execution e SET last_seq = s.seq
      FROM (SELECT n.execution_id, max(n.seq) AS seq FROM n WHERE n.seq IS NOT NULL GROUP BY n.execution_id) s
     WHERE e.id = s.execution_id;

    -- Parking keeps an earlier wake_at: a signal or a cancel that came meanwhile is not lost. The
    -- deadline wakes it too, to end itself in time.
    IF true = ANY (r_park) THEN
        UPDATE workflow_execution e
           SET owner = NULL, owner_epoch = e.owner_epoch + 1,
               wake_at = least(e.wake_at, e.deadline_at, (SELECT min(o.next_at) FROM workflow_execution_node o
                                                            WHERE o.execution_id = e.id AND o.completed_at IS NULL))
          FROM unnest(r_ids, r_park) WITH ORDINALITY AS t(id, park, ord)
         WHERE e.id = t.id AND t.park AND t.ord = ANY (held);
    END IF;

    SELECT array_agg(r_ids[t.run]) AS ids, array_agg(t.outcome) AS outcomes, array_agg(t.output) AS outputs,
           array_agg(t.error) AS errors, array_agg(NULL::uuid) AS claims
      INTO ends
      FROM unnest(e_runs, e_outcomes, e_outputs, e_errors) AS t(run, outcome, output, error)
     WHERE t.run = ANY (held);
    IF ends.ids IS NULL THEN
        RETURN QUERY SELECT t.ord, t.ord = ANY (held), false, NULL::uuid, false
          FROM unnest(r_ids) WITH ORDINALITY AS t(id, ord);
    ELSE
        RETURN QUERY
        SELECT t.ord, t.ord = ANY (held), coalesce(c.applied, false), c.workspace, coalesce(c.freed, false)
          FROM unnest(r_ids) WITH ORDINALITY AS t(id, ord)
          LEFT JOIN fb_complete_1(ends.ids, ends.outcomes, ends.outputs, ends.errors, ends.claims, 'RUNNING', p_actor) c
                 ON c.execution = t.id AND t.ord = ANY (held);
    END IF;
END $fn$;
