-- Records what runs of one process did: nodes that started, wait or settled, and runs that parked or ended. One commit
-- covers many runs. Returns a row per run: whether this process still held the run, and whether its end freed a slot.
--
-- The fence: the holder's row is locked, and must name this owner, this epoch and RUNNING. Without the lock, a fact of
-- the previous owner could be stored after the new owner had read the rows. A settled node never changes, so the whole
-- call may be repeated. p_process is null if the caller has locked the rows and checked their owners. The holder of a
-- root run is the run itself. The holder of a child is its root, whose owner runs the whole tree. For a child, its own
-- row must be RUNNING too; it is locked after all holders' rows.
--
-- The input is parallel arrays: r_ runs, f_ facts of nodes (in the order in which they happened), e_ ends of runs. The
-- columns f_runs and e_runs name a run by its position in the r_ arrays, from 1. The same execution may occur twice in
-- a call, if a process lost it and resumed it. The facts of the older run are then refused, because its epoch is no
-- longer current.
--
--   r_park_ms  the run parks, and has to continue after this time at the latest
--   e_settled  how many facts of an ending run settle a node
CREATE OR REPLACE FUNCTION forebay_r1.record(
    p_process uuid, r_ids uuid[], r_holders uuid[], r_epochs bigint[], r_park_ms bigint[],
    f_runs int[], f_nodes text[], f_iterations int[], f_statuses text[], f_attempts int[], f_next_in_ms bigint[],
    f_labels text[], f_inputs jsonb[], f_outputs jsonb[], f_errors jsonb[], f_once boolean[],
    e_runs int[], e_settled int[], e_outcomes text[], e_outputs jsonb[], e_errors jsonb[], p_actor text)
RETURNS TABLE (run bigint, held boolean, ended boolean, workspace uuid, freed boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    -- For each run, by position: how many nodes it had settled (-1 if not held), the location of its row, and its
    -- workspace.
    v_seqs bigint[];
    v_rows tid[];
    v_workspaces uuid[];
    v_ended record;
BEGIN
    -- Rows are changed below by the location that this statement finds and locks. A join by id could be planned badly
    -- while the statistics say that the table is empty: it would read the whole table.
    SELECT array_agg(coalesce(holder.last_seq, -1) ORDER BY run.ord),
           array_agg(coalesce(holder.ctid, '(0,0)') ORDER BY run.ord),
           array_agg(coalesce(holder.workspace_id, '00000000-0000-0000-0000-000000000000') ORDER BY run.ord)
      INTO v_seqs, v_rows, v_workspaces
      FROM (SELECT *
              FROM unnest(r_holders, r_epochs) WITH ORDINALITY AS run(holder_id, epoch, ord)
             ORDER BY run.holder_id) run
      LEFT JOIN LATERAL (
           SELECT execution.ctid, execution.last_seq, execution.workspace_id FROM forebay.workflow_execution execution
            WHERE execution.id = run.holder_id AND execution.owner = coalesce(p_process, execution.owner)
              AND execution.owner_epoch = run.epoch AND execution.status = 'RUNNING'
              FOR UPDATE) holder ON true;
    IF r_ids <> r_holders THEN
        SELECT array_agg(CASE WHEN run.id = run.holder_id THEN run.seq ELSE coalesce(child.last_seq, -1) END
                         ORDER BY run.ord),
               array_agg(CASE WHEN run.id = run.holder_id THEN run.location ELSE coalesce(child.ctid, '(0,0)') END
                         ORDER BY run.ord)
          INTO v_seqs, v_rows
          FROM (SELECT *
                  FROM unnest(r_ids, r_holders, v_seqs, v_rows)
                       WITH ORDINALITY AS run(id, holder_id, seq, location, ord)
                 ORDER BY run.id) run
          LEFT JOIN LATERAL (
               SELECT execution.ctid, execution.last_seq FROM forebay.workflow_execution execution
                WHERE execution.id = run.id AND run.id <> run.holder_id AND run.seq >= 0
                  AND execution.root = run.holder_id AND execution.status = 'RUNNING'
                  FOR UPDATE) child ON true;
    END IF;

    WITH facts AS MATERIALIZED (
        SELECT fact.*, r_ids[fact.run] AS execution_id, v_workspaces[fact.run] AS workspace_id,
               CASE WHEN fact.status = 'RETRYING' THEN jsonb_build_array(jsonb_build_object(
                    'attempt', fact.attempt - 1, 'at', clock_timestamp(), 'error', fact.error)) END AS failed_attempt,
               CASE WHEN fact.settles
                    THEN v_seqs[fact.run]
                        + row_number() OVER (PARTITION BY fact.run, fact.settles ORDER BY fact.ord) END AS seq
          FROM (SELECT given.*, given.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN') AS settles
                  FROM unnest(f_runs, f_nodes, f_iterations, f_statuses, f_attempts, f_next_in_ms, f_labels, f_inputs,
                              f_outputs, f_errors, f_once)
                       WITH ORDINALITY AS given(run, node, iteration, status, attempt, next_in_ms, label, input,
                                                  output, error, once, ord)
                 WHERE v_seqs[given.run] >= 0) fact),
    stored AS (
        INSERT INTO forebay.workflow_execution_node AS known (execution_id, node, iteration, workspace_id, status,
            attempt, seq, label, next_at, input, output, error, earlier, started_at, completed_at, duration_ms, once)
        SELECT fact.execution_id, fact.node, fact.iteration, fact.workspace_id, fact.status, fact.attempt, fact.seq,
               fact.label, clock_timestamp() + make_interval(secs => fact.next_in_ms / 1000.0), fact.input, fact.output,
               fact.error, fact.failed_attempt,
               CASE WHEN fact.status IN ('SKIPPED', 'CANCELED') THEN NULL ELSE clock_timestamp() END,
               CASE WHEN fact.seq IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN fact.seq IS NOT NULL THEN 0 END, fact.once
          FROM facts fact
        ON CONFLICT (execution_id, node, iteration) DO UPDATE
           SET status = excluded.status, attempt = excluded.attempt, seq = excluded.seq, label = excluded.label,
               next_at = excluded.next_at, input = coalesce(excluded.input, known.input),
               -- functions/collect.sql has already stored the results of a loop's items.
               output = coalesce(excluded.output, CASE WHEN excluded.status = 'COMPLETED' THEN known.output END),
               error = excluded.error, completed_at = excluded.completed_at, once = known.once OR excluded.once,
               -- A loop that a rerun continues has a row before it begins.
               started_at = coalesce(known.started_at, excluded.started_at),
               earlier = CASE WHEN excluded.status = 'RETRYING' AND excluded.attempt > known.attempt
                    THEN jsonb_path_query_array(coalesce(known.earlier, '[]') || excluded.earlier,
                                                '$[last - 9 to last]')
                    ELSE coalesce(known.earlier, excluded.earlier) END,
               duration_ms = CASE WHEN excluded.completed_at IS NOT NULL
                    THEN (extract(epoch FROM clock_timestamp() - known.started_at) * 1000)::bigint END
         WHERE known.status IN ('PENDING', 'RUNNING', 'RETRYING')
        RETURNING known.execution_id, known.workspace_id, known.seq),
    -- One change-log entry for the executions whose nodes changed. An execution that ends writes its own entry.
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces)
        SELECT 'nodes', 'UPDATE', array_agg(moved.execution_id), array_agg(moved.workspace_id)
          FROM (SELECT DISTINCT stored.execution_id, stored.workspace_id FROM stored
                 WHERE cardinality(e_runs) < cardinality(r_ids)
                   AND NOT stored.execution_id = ANY (ARRAY(SELECT r_ids[ending.run]
                                                              FROM unnest(e_runs) AS ending(run)))) moved
        HAVING count(*) > 0)
    -- Only stored facts count: a repeated or late fact is no progress. The row of a run that ends is written only once,
    -- below. Its count needs no such check, because facts of an ended run cannot be repeated.
    UPDATE forebay.workflow_execution execution SET last_seq = progress.seq
      FROM (SELECT run.location, max(stored.seq) AS seq
              FROM stored JOIN unnest(r_ids, v_rows) WITH ORDINALITY AS run(id, location, ord)
                ON run.id = stored.execution_id AND v_seqs[run.ord] >= 0 AND NOT run.ord = ANY (e_runs)
             WHERE stored.seq IS NOT NULL AND cardinality(e_runs) < cardinality(r_ids) GROUP BY run.location) progress
     WHERE execution.ctid = progress.location;

    IF EXISTS (SELECT 1 FROM unnest(r_park_ms) AS run(park_ms) WHERE run.park_ms IS NOT NULL) THEN
        PERFORM forebay_r1.park_runs(
            ARRAY(SELECT run.id FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS run(id, park_ms, ord)
                   WHERE run.park_ms IS NOT NULL AND v_seqs[run.ord] >= 0),
            ARRAY(SELECT run.park_ms FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS run(id, park_ms, ord)
                   WHERE run.park_ms IS NOT NULL AND v_seqs[run.ord] >= 0));
    END IF;

    WITH ended AS (
        UPDATE forebay.workflow_execution execution
           SET status = ending.outcome, output = ending.output, error = ending.error, completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - execution.started_at) * 1000)::bigint,
               last_seq = execution.last_seq + ending.settled, owner = NULL, owner_epoch = execution.owner_epoch + 1
          FROM unnest(e_runs, e_settled, e_outcomes, e_outputs, e_errors)
               AS ending(run, settled, outcome, output, error)
         WHERE execution.ctid = v_rows[ending.run] AND v_seqs[ending.run] >= 0 AND execution.status = 'RUNNING'
        RETURNING execution.id, execution.workspace_id, execution.status, execution.error, execution.trigger,
                  execution.parent IS NOT NULL OR execution.descendants > 0 AS of_tree),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(ended.id), array_agg(ended.workspace_id), ended.status
          FROM ended
         GROUP BY ended.status)
    SELECT array_agg(ended.id) AS ids, array_agg(ended.status) AS outcomes, array_agg(ended.error) AS errors,
           array_agg(ended.id) FILTER (WHERE ended.trigger ->> 'type' = 'event') AS of_events,
           array_agg(ended.id) FILTER (WHERE ended.of_tree) AS of_trees
      INTO v_ended FROM ended;
    -- Nodes that its descendants settled count as progress of the root.
    IF r_ids <> r_holders THEN
        UPDATE forebay.workflow_execution root
           SET tree_seq = root.tree_seq + (SELECT count(*) FROM unnest(f_runs, f_statuses) AS fact(run, status)
                WHERE r_holders[fact.run] = root.id AND r_ids[fact.run] <> root.id AND v_seqs[fact.run] >= 0
                  AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN'))
         WHERE root.id = ANY (ARRAY(
               SELECT DISTINCT r_holders[fact.run] FROM unnest(f_runs, f_statuses) AS fact(run, status)
                WHERE r_ids[fact.run] <> r_holders[fact.run] AND v_seqs[fact.run] >= 0
                  AND fact.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')));
    END IF;
    IF v_ended.ids IS NULL THEN
        RETURN QUERY SELECT run.ord, v_seqs[run.ord] >= 0, false, NULL::uuid, false
          FROM unnest(r_ids) WITH ORDINALITY AS run(id, ord);
    ELSE
        IF EXISTS (SELECT 1
                     FROM forebay.webhook live
                    WHERE live.workspace_id = ANY (v_workspaces) AND live.disabled_at IS NULL) THEN
            PERFORM forebay_r1.add_deliveries(v_ended.ids);
        END IF;
        RETURN QUERY
        SELECT run.ord, v_seqs[run.ord] >= 0, followed.execution IS NOT NULL, v_workspaces[run.ord],
               coalesce(followed.freed, false)
          FROM unnest(r_ids) WITH ORDINALITY AS run(id, ord)
          LEFT JOIN forebay_r1.after_end(v_ended.ids, v_ended.outcomes, v_ended.errors, v_ended.of_events,
                                         v_ended.of_trees, false, p_actor)
                 AS followed ON followed.execution = run.id AND v_seqs[run.ord] >= 0;
    END IF;
END $fn$;
