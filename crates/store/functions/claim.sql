-- Claims the next items of some workspaces, and begins them if the claimer is the runner. The heart
-- of the service; why it is strict is told in docs/admission.md.
--
-- The fence is the advisory lock of each workspace's shard, in its own statement: the claim after it
-- has a snapshot younger than the lock, so it counts every slot that was ever committed in that
-- shard. In one statement with the claim the lock would come after the snapshot and fence nothing.
-- Who asks for one shard waits for its lock; who asks for several waits for none, and is told which
-- are busy: nobody holds a lock while waiting for another, and a contended shard keeps no other back.
--
-- p_engine names the engine when the caller itself runs what it claims: claim, begin and DISPATCHED
-- are then one commit. Execution rows are locked with SKIP LOCKED (the lock order elsewhere is
-- execution, queue, shard); an item whose execution is locked stays CLAIMED and begins separately.
--
-- Returns one row per claimed item (kind 'item'), one per workspace asked (kind 'workspace':
-- running and limit after this claim, whether more is ready, whether anything was put back behind a
-- gate, and the definitions whose items are to be moved out of the way), or 'busy' for one whose
-- shard was not to be had. What was let through a gate that is closed now goes back behind it; what
-- never stood at one is left where it is, to be moved in bulk: a claim that moved it would pay for
-- the backlog. waited_ms is how long an item could have started before it did.
--
-- Each step adds columns to the one before it, and rows are changed by an array of their ids. A join
-- may be planned the wrong way round while statistics say that the queue is empty, and then reads all
-- of it. What is changed was locked before, in the state that the change leaves.
CREATE OR REPLACE FUNCTION forebay_r1.claim(
    p_workspaces uuid[], p_wanted int[], p_claim uuid, p_process uuid, p_engine text, p_semantics int)
RETURNS TABLE (
    kind text, workspace uuid, item uuid, definition uuid, version uuid, attempts int, in_doubt boolean, gone boolean, newer boolean,
    begun boolean, epoch bigint, input jsonb, trigger jsonb, created timestamptz, deadline_in_ms bigint,
    running int, max_running int, more boolean, parked boolean, in_the_way uuid[], weight int, trace text, waited_ms bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_shards int[] := ARRAY(SELECT DISTINCT forebay.shard_of(t.id) FROM unnest(p_workspaces) AS t(id) ORDER BY 1);
    v_now timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'forebay_r1.claim needs READ COMMITTED';
    END IF;
    IF cardinality(v_shards) = 1 THEN
        PERFORM pg_advisory_xact_lock(7001, v_shards[1]);
    ELSE
        v_shards := ARRAY(SELECT s FROM unnest(v_shards) AS s WHERE pg_try_advisory_xact_lock(7001, s));
    END IF;
    -- One time for the whole claim: of those it took together, the ids say who was before whom.
    v_now := clock_timestamp();
    RETURN QUERY
    WITH w AS MATERIALIZED (
        SELECT ws.id, ws.shard, ws.weight, u.n AS running, coalesce(ws.limit_override, tier.max_running) AS lim,
               ws.paused OR ws.deleted_at IS NOT NULL AS closed,
               CASE WHEN ws.paused OR ws.deleted_at IS NOT NULL THEN 0
                    ELSE least(t.want, coalesce(ws.limit_override, tier.max_running) - u.n) END AS room
          FROM (SELECT t.id, max(t.want) AS want FROM unnest(p_workspaces, p_wanted) AS t(id, want) GROUP BY t.id) t
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.workspace x WHERE x.id = t.id LIMIT 1) ws
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier y WHERE y.name = ws.tier LIMIT 1) tier
         CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM forebay.execution_queue r
                              WHERE r.shard = ws.shard AND r.workspace_id = ws.id AND r.stage = 5) u
         WHERE ws.shard = ANY (v_shards)),
    c AS MATERIALIZED (
        SELECT q.* FROM w CROSS JOIN LATERAL (
            SELECT q.id, q.shard, q.workspace_id, q.workflow_definition_id AS def, q.concurrency_key AS key, q.rank, q.gated,
                   q.attempt_count, q.in_doubt, greatest(q.created_at, q.available_at) AS since
              FROM forebay.execution_queue q
             WHERE q.shard = w.shard AND q.workspace_id = w.id AND q.stage = 0
             ORDER BY q.rank, q.id LIMIT greatest(w.room, 0) FOR UPDATE SKIP LOCKED) q),
    -- A missing definition must not block its workspace's head: it is claimed, then failed.
    k AS (
        SELECT c.*, d.id IS NULL OR d.deleted_at IS NOT NULL AS gone,
               CASE WHEN d.deleted_at IS NOT NULL THEN NULL WHEN d.status <> 'ACTIVE' THEN 0 ELSE d.concurrency END AS dlim,
               c.key IS NULL OR row_number() OVER (PARTITION BY c.def, c.key ORDER BY c.rank, c.id)
                 + (SELECT count(*) FROM forebay.execution_queue r
                     WHERE r.shard = c.shard AND r.workspace_id = c.workspace_id AND r.stage = 5
                       AND r.workflow_definition_id = c.def AND r.concurrency_key = c.key)
                 <= coalesce(d.key_concurrency, 1) AS key_ok
          FROM c LEFT JOIN forebay.workflow_definition d ON d.id = c.def),
    g AS (
        SELECT k.*, key_ok AND (dlim IS NULL OR row_number() OVER (PARTITION BY def, key_ok ORDER BY rank, id)
                 + (SELECT count(*) FROM forebay.execution_queue r
                     WHERE r.shard = k.shard AND r.workspace_id = k.workspace_id AND r.stage = 5
                       AND r.workflow_definition_id = k.def) <= dlim) AS ok
          FROM k),
    x AS MATERIALIZED (
        SELECT g.*, e.id IS NOT NULL AS begun, e.version_id, e.owner_epoch, e.input, e.trigger, e.begun_of, e.deadline_at,
               e.trace_context
          FROM g LEFT JOIN LATERAL (
            SELECT e.id, e.version_id, e.owner_epoch, e.input, e.trigger, e.created_at AS begun_of, e.trace_context,
                   least(e.deadline_at, v_now + make_interval(secs => e.timeout_ms / 1000.0)) AS deadline_at
              FROM forebay.workflow_execution e
             WHERE e.id = g.id AND e.status = 'PENDING' AND e.semantics <= p_semantics
               AND p_engine IS NOT NULL AND g.ok AND NOT g.gone
               FOR UPDATE SKIP LOCKED) e ON true),
    -- What was met, by workspace.
    m AS MATERIALIZED (
        SELECT x.workspace_id, count(*) AS met, count(*) FILTER (WHERE x.ok)::int AS taken,
               array_agg(DISTINCT x.def) FILTER (WHERE NOT x.ok AND x.key_ok) AS held_back,
               array_agg(DISTINCT x.def) FILTER (WHERE NOT x.ok AND x.key_ok AND NOT x.gated) AS never_gated,
               bool_or(NOT x.ok AND (x.gated OR NOT x.key_ok)) AS parked
          FROM x GROUP BY x.workspace_id),
    a AS (
        UPDATE forebay.execution_queue q
           SET stage = 5, claim_id = p_claim, claimed_by = p_process, claimed_at = v_now,
               status = CASE WHEN q.id = ANY (ARRAY(SELECT x.id FROM x WHERE x.begun)) THEN 'DISPATCHED' ELSE 'CLAIMED' END,
               dispatched_at = CASE WHEN q.id = ANY (ARRAY(SELECT x.id FROM x WHERE x.begun)) THEN v_now END,
               gated = q.gated OR q.workflow_definition_id = ANY (ARRAY(SELECT DISTINCT x.def FROM x WHERE x.dlim IS NOT NULL))
         WHERE q.id = ANY (ARRAY(SELECT x.id FROM x WHERE x.ok)) AND q.status = 'PENDING'),
    s AS (
        UPDATE forebay.execution_queue q
           SET gated = true,
               stage = CASE WHEN q.id = ANY (ARRAY(SELECT x.id FROM x WHERE NOT x.ok AND x.key_ok)) THEN 3 ELSE 2 END
         WHERE q.id = ANY (ARRAY(SELECT x.id FROM x WHERE NOT x.ok AND (x.gated OR NOT x.key_ok))) AND q.status = 'PENDING'),
    e AS (
        UPDATE forebay.workflow_execution e
           SET status = 'RUNNING', engine = p_engine, owner = p_process, owner_epoch = owner_epoch + 1,
               started_at = v_now,
               deadline_at = least(e.deadline_at, v_now + make_interval(secs => e.timeout_ms / 1000.0))
         WHERE e.id = ANY (ARRAY(SELECT x.id FROM x WHERE x.begun)) AND e.status = 'PENDING'
        RETURNING e.id, e.workspace_id),
    l AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(e.id), array_agg(e.workspace_id), 'RUNNING' FROM e HAVING count(*) > 0)
    SELECT 'item', x.workspace_id, x.id, x.def, coalesce(x.version_id, o.version_id), x.attempt_count, x.in_doubt, x.gone,
           coalesce(o.semantics > p_semantics, false), x.begun, x.owner_epoch + 1, x.input, x.trigger, x.begun_of,
           (extract(epoch FROM x.deadline_at - v_now) * 1000)::bigint,
           NULL::int, NULL::int, NULL::boolean, NULL::boolean, NULL::uuid[], NULL::int,
           coalesce(x.trace_context, o.trace_context), (extract(epoch FROM v_now - x.since) * 1000)::bigint
      FROM x LEFT JOIN LATERAL (
            SELECT o.version_id, o.semantics, o.trace_context FROM forebay.workflow_execution o
             WHERE o.id = x.id AND NOT x.begun LIMIT 1) o ON true
     WHERE x.ok
    UNION ALL
    SELECT 'workspace', w.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           w.running + coalesce(m.taken, 0), w.lim,
           NOT w.closed AND (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue r
                WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = 0
                LIMIT 1 + coalesce(m.met, 0)) n) > coalesce(m.met, 0),
           coalesce(m.parked, false),
           -- A few that were let through too many are put back by claims alone; when nothing else
           -- is met, there may be many.
           CASE WHEN m.taken > 0 THEN m.never_gated ELSE m.held_back END,
           w.weight::int, NULL, NULL
      FROM w LEFT JOIN m ON m.workspace_id = w.id
    UNION ALL
    SELECT 'busy', t.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM unnest(p_workspaces) AS t(id)
     WHERE NOT forebay.shard_of(t.id) = ANY (v_shards);
END $fn$;
