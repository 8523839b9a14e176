-- Records what runs of one process did: nodes started, waiting or settled, runs parked or ended,
-- many runs in one commit. Returns a row per run: whether this process still held it, and what
-- its end freed.
--
-- The fence: the holder's row is locked and must name this owner, this epoch and RUNNING. An
-- unlocked check would let a zombie's fact in after its successor had read the rows. A settled
-- node is never changed again, so the whole call may be repeated. A run's holder is itself; a child's is its root,
-- whose owner runs the whole tree, and then its own row, locked after the holders', must be RUNNING too.
--
-- Facts come as parallel arrays; r_ runs, f_ facts of nodes (in the order
-- in which they happened), e_ ends of runs. f_runs and e_runs say whose they are by its place among
-- the runs, from 1: a call may bring the same execution twice, from a process that lost it and took
-- it up again, and what the older run says is refused with it. A run to be parked gives r_park_ms, the time after which it
-- wants to go on at the latest; one that ends how many of its facts settle a node.
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
    -- By the run's place: what it had settled so far, or -1 if it is not held; and whose it is.
    seqs bigint[];
    owners uuid[];
    places tid[];
    ends record;
BEGIN
    -- The rows are changed below where they were found here, locked: a join by id may be planned the
    -- wrong way round while statistics say that the table is empty, and then reads all of it.
    SELECT array_agg(coalesce(e.last_seq, -1) ORDER BY t.ord), array_agg(coalesce(e.ctid, '(0,0)') ORDER BY t.ord),
           array_agg(coalesce(e.workspace_id, '00000000-0000-0000-0000-000000000000') ORDER BY t.ord)
      INTO seqs, places, owners
      FROM (SELECT * FROM unnest(r_holders, r_epochs) WITH ORDINALITY AS t(id, epoch, ord) ORDER BY t.id) t
      LEFT JOIN LATERAL (
           SELECT e.ctid, e.last_seq, e.workspace_id FROM forebay.workflow_execution e
            WHERE e.id = t.id AND e.owner = p_process AND e.owner_epoch = t.epoch AND e.status = 'RUNNING'
              FOR UPDATE) e ON true;
    IF r_ids <> r_holders THEN
        SELECT array_agg(CASE WHEN t.id = t.holder THEN t.seq ELSE coalesce(c.last_seq, -1) END ORDER BY t.ord),
               array_agg(CASE WHEN t.id = t.holder THEN t.place ELSE coalesce(c.ctid, '(0,0)') END ORDER BY t.ord)
          INTO seqs, places
          FROM (SELECT * FROM unnest(r_ids, r_holders, seqs, places) WITH ORDINALITY AS t(id, holder, seq, place, ord)
                 ORDER BY t.id) t
          LEFT JOIN LATERAL (
               SELECT c.ctid, c.last_seq FROM forebay.workflow_execution c
                WHERE c.id = t.id AND t.id <> t.holder AND t.seq >= 0 AND c.root = t.holder AND c.status = 'RUNNING'
                  FOR UPDATE) c ON true;
    END IF;

    WITH f AS MATERIALIZED (
        SELECT f.*, r_ids[f.run] AS id, owners[f.run] AS workspace_id,
               CASE WHEN f.status = 'RETRYING' THEN jsonb_build_array(jsonb_build_object(
                    'attempt', f.attempt - 1, 'at', clock_timestamp(), 'error', f.error)) END AS failed,
               CASE WHEN f.settles THEN seqs[f.run] + row_number() OVER (PARTITION BY f.run, f.settles ORDER BY f.ord) END AS seq
          FROM (SELECT f.*, f.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN') AS settles
                  FROM unnest(f_runs, f_nodes, f_iterations, f_statuses, f_attempts, f_next_in_ms, f_labels, f_inputs,
                              f_outputs, f_errors, f_once)
                       WITH ORDINALITY AS f(run, node, iteration, status, attempt, next_in_ms, label, input, output, error, once, ord)
                 WHERE seqs[f.run] >= 0) f),
    n AS (
        INSERT INTO forebay.workflow_execution_node AS n (execution_id, node, iteration, workspace_id, status, attempt, seq, label,
            next_at, input, output, error, earlier, started_at, completed_at, duration_ms, once)
        SELECT f.id, f.node, f.iteration, f.workspace_id, f.status, f.attempt, f.seq, f.label,
               clock_timestamp() + make_interval(secs => f.next_in_ms / 1000.0), f.input, f.output, f.error, f.failed,
               CASE WHEN f.status IN ('SKIPPED', 'CANCELED') THEN NULL ELSE clock_timestamp() END,
               CASE WHEN f.seq IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN f.seq IS NOT NULL THEN 0 END, f.once
          FROM f
        ON CONFLICT (execution_id, node, iteration) DO UPDATE
           SET status = excluded.status, attempt = excluded.attempt, seq = excluded.seq, label = excluded.label,
               next_at = excluded.next_at, input = coalesce(excluded.input, n.input),
               -- What a loop's items came to is there already: functions/gather.sql.
               output = coalesce(excluded.output, CASE WHEN excluded.status = 'COMPLETED' THEN n.output END),
               error = excluded.error, completed_at = excluded.completed_at, once = n.once OR excluded.once,
               -- A loop that a rerun goes on with has a row before it begins.
               started_at = coalesce(n.started_at, excluded.started_at),
               earlier = CASE WHEN excluded.status = 'RETRYING' AND excluded.attempt > n.attempt
                    THEN jsonb_path_query_array(coalesce(n.earlier, '[]') || excluded.earlier, '$[last - 9 to last]')
                    ELSE coalesce(n.earlier, excluded.earlier) END,
               duration_ms = CASE WHEN excluded.completed_at IS NOT NULL
                    THEN (extract(epoch FROM clock_timestamp() - n.started_at) * 1000)::bigint END
         WHERE n.status IN ('PENDING', 'RUNNING', 'RETRYING')
        RETURNING n.execution_id, n.workspace_id, n.seq),
    -- Whose nodes have moved; an end says so itself.
    l AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces)
        SELECT 'nodes', 'UPDATE', array_agg(m.id), array_agg(m.ws)
          FROM (SELECT DISTINCT n.execution_id AS id, n.workspace_id AS ws FROM n
                 WHERE cardinality(e_runs) < cardinality(r_ids)
                   AND NOT n.execution_id = ANY (ARRAY(SELECT r_ids[t.run] FROM unnest(e_runs) AS t(run)))) m
        HAVING count(*) > 0)
    -- Only what was stored counts: a repeated or late fact is no progress. A run that ends is written
    -- once, below: its facts cannot be repeated, because it is over then.
    UPDATE forebay.workflow_execution e SET last_seq = s.seq
      FROM (SELECT t.place, max(n.seq) AS seq
              FROM n JOIN unnest(r_ids, places) WITH ORDINALITY AS t(id, place, ord)
                ON t.id = n.execution_id AND seqs[t.ord] >= 0 AND NOT t.ord = ANY (e_runs)
             WHERE n.seq IS NOT NULL AND cardinality(e_runs) < cardinality(r_ids) GROUP BY t.place) s
     WHERE e.ctid = s.place;

    -- Parking keeps an earlier wake_at: a signal or a cancel that came meanwhile is not lost. The
    -- deadline wakes it too, to end itself in time.
    IF EXISTS (SELECT 1 FROM unnest(r_park_ms) AS t(ms) WHERE t.ms IS NOT NULL) THEN
        UPDATE forebay.workflow_execution e
           SET owner = NULL, owner_epoch = e.owner_epoch + 1,
               wake_at = least(e.wake_at, e.deadline_at, clock_timestamp() + make_interval(secs => (
                    SELECT min(t.ms) FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS t(id, ms, ord)
                     WHERE t.id = e.id AND seqs[t.ord] >= 0) / 1000.0))
         WHERE e.id = ANY (ARRAY(SELECT t.id FROM unnest(r_ids, r_park_ms) WITH ORDINALITY AS t(id, ms, ord)
                                  WHERE t.ms IS NOT NULL AND seqs[t.ord] >= 0));
    END IF;

    WITH e AS (
        UPDATE forebay.workflow_execution e
           SET status = t.outcome, output = t.output, error = t.error, completed_at = clock_timestamp(),
               duration_ms = (extract(epoch FROM clock_timestamp() - e.started_at) * 1000)::bigint,
               last_seq = e.last_seq + t.settled, owner = NULL, owner_epoch = e.owner_epoch + 1, wake_at = NULL
          FROM unnest(e_runs, e_settled, e_outcomes, e_outputs, e_errors) AS t(run, settled, outcome, output, error)
         WHERE e.ctid = places[t.run] AND seqs[t.run] >= 0 AND e.status = 'RUNNING'
        RETURNING e.id, e.workspace_id, e.status, e.error, e.trigger, e.parent IS NOT NULL OR e.descendants > 0 AS tree),
    l AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(e.id), array_agg(e.workspace_id), e.status FROM e GROUP BY e.status)
    SELECT array_agg(e.id) AS ids, array_agg(e.status) AS outcomes, array_agg(e.error) AS errors,
           array_agg(e.id) FILTER (WHERE e.trigger ->> 'type' = 'event') AS of_events,
           array_agg(e.id) FILTER (WHERE e.tree) AS of_trees
      INTO ends FROM e;
    -- What its descendants settled is a root's progress.
    IF r_ids <> r_holders THEN
        UPDATE forebay.workflow_execution e
           SET tree_seq = e.tree_seq + (SELECT count(*) FROM unnest(f_runs, f_statuses) AS f(run, status)
                WHERE r_holders[f.run] = e.id AND r_ids[f.run] <> e.id AND seqs[f.run] >= 0
                  AND f.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN'))
         WHERE e.id = ANY (ARRAY(SELECT DISTINCT r_holders[f.run] FROM unnest(f_runs, f_statuses) AS f(run, status)
                WHERE r_ids[f.run] <> r_holders[f.run] AND seqs[f.run] >= 0
                  AND f.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELED', 'UNKNOWN')));
    END IF;
    IF ends.ids IS NULL THEN
        RETURN QUERY SELECT t.ord, seqs[t.ord] >= 0, false, NULL::uuid, false
          FROM unnest(r_ids) WITH ORDINALITY AS t(id, ord);
    ELSE
        IF EXISTS (SELECT 1 FROM forebay.webhook w WHERE w.workspace_id = ANY (owners) AND w.disabled_at IS NULL) THEN
            PERFORM forebay_r1.add_deliveries(ends.ids);
        END IF;
        RETURN QUERY
        SELECT t.ord, seqs[t.ord] >= 0, l.execution IS NOT NULL, owners[t.ord], coalesce(l.freed, false)
          FROM unnest(r_ids) WITH ORDINALITY AS t(id, ord)
          LEFT JOIN forebay_r1.after_end(ends.ids, ends.outcomes, ends.errors, ends.of_events, ends.of_trees, false, p_actor) l
                 ON l.execution = t.id AND seqs[t.ord] >= 0;
    END IF;
END $fn$;
