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
-- p_protocol is the number of the rules that the caller claims by (forebay.protocol). Any other than the database's is
-- refused.
--
-- Read the statement aloud, one noun after the other:
--   workspaces        what each may use and uses, and so how much room it has
--   candidates        its next ready items, no more than it has room for, locked
--   with_key_room     the same: is its definition gone, how many may run of it, has its key room
--   with_grant        the same: is it granted, because its key and its definition have room
--   judged            the same, and of those that begin in this commit the execution, locked
--   per_workspace     of each workspace: how many were granted, and which definitions hold items back
--   claimed           granted items hold a slot from here on
--   put_back          items that were let through a limit that is full by now wait for it again
--   begun, logged     executions that run from here on, and the note of it for whoever follows
--
-- Returns one row per claimed item (kind 'item'), one per workspace asked (kind 'workspace':
-- running and limit after this claim, whether more is ready, whether anything was put back, and the
-- definitions whose ready items are blocked), or 'busy' for one whose shard was
-- unavailable. What never waited for a limit and is held back by one is left where it is, to be moved
-- in bulk: a claim that moved it would pay for the backlog. waited_ms is how long an item could have
-- started before it did.
--
-- Each step adds columns to the one before it, and rows are changed by an array of their ids. A join
-- may be planned the wrong way round while statistics say that the queue is empty, and then reads all
-- of it. What is changed was locked before, in the state that the change leaves.
CREATE OR REPLACE FUNCTION forebay_r1.claim(
    p_workspaces uuid[], p_wanted int[], p_claim uuid, p_process uuid, p_engine text, p_semantics int, p_protocol int)
RETURNS TABLE (
    kind text, workspace uuid, item uuid, definition uuid, version uuid, attempts int, in_doubt boolean, gone boolean,
    newer boolean, begun boolean, epoch bigint, input jsonb, trigger jsonb, created timestamptz, deadline_in_ms bigint,
    running int, max_running int, more boolean, put_back boolean, blocked_definitions uuid[], weight int, trace text,
    waited_ms bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_shards int[] := ARRAY(SELECT DISTINCT forebay.shard_of(asked.id)
                              FROM unnest(p_workspaces) AS asked(id)
                             ORDER BY 1);
    v_now timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'forebay_r1.claim needs READ COMMITTED';
    END IF;
    IF cardinality(v_shards) = 1 THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), v_shards[1]);
    ELSE
        v_shards := ARRAY(SELECT shard
                            FROM unnest(v_shards) AS shard
                           WHERE pg_try_advisory_xact_lock(forebay.lock_shard(), shard));
    END IF;
    -- Read under the lock: whoever raises it holds every shard's.
    IF p_protocol IS DISTINCT FROM (SELECT number FROM forebay.protocol) THEN
        RAISE EXCEPTION 'a claim by protocol % is refused: the claims of this database go by protocol %', p_protocol,
            (SELECT number FROM forebay.protocol)
            USING ERRCODE = 'FB001', HINT = 'Replace this process by one of the release that the others run.';
    END IF;
    -- All items of one claim get the same time; their ids keep the order.
    v_now := clock_timestamp();
    RETURN QUERY
    WITH workspaces AS MATERIALIZED (
        SELECT workspace.id, workspace.shard, workspace.weight, slots.running,
               coalesce(workspace.limit_override, tier.max_running) AS max_running,
               workspace.paused OR workspace.deleted_at IS NOT NULL AS closed,
               CASE WHEN workspace.paused OR workspace.deleted_at IS NOT NULL THEN 0
                    ELSE least(request.wanted,
                               coalesce(workspace.limit_override, tier.max_running) - slots.running) END AS room
          FROM (SELECT requested.id, max(requested.wanted) AS wanted
                  FROM unnest(p_workspaces, p_wanted) AS requested(id, wanted)
                 GROUP BY requested.id) request
         -- LIMIT 1: always a primary-key probe, never a scan.
         CROSS JOIN LATERAL (SELECT * FROM forebay.workspace WHERE workspace.id = request.id LIMIT 1) workspace
         CROSS JOIN LATERAL (SELECT * FROM forebay.tier WHERE tier.name = workspace.tier LIMIT 1) tier
         CROSS JOIN LATERAL (SELECT count(*)::int AS running FROM forebay.execution_queue holder
                              WHERE holder.shard = workspace.shard AND holder.workspace_id = workspace.id
                                AND holder.stage = forebay.stage_slot()) slots
         WHERE workspace.shard = ANY (v_shards)),
    candidates AS MATERIALIZED (
        SELECT next.* FROM workspaces CROSS JOIN LATERAL (
            SELECT ready.id, ready.shard, ready.workspace_id, ready.workflow_definition_id AS definition_id,
                   ready.concurrency_key AS key, ready.rank, ready.gated, ready.attempt_count, ready.in_doubt,
                   greatest(ready.created_at, ready.available_at) AS since
              FROM forebay.execution_queue ready
             WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id
               AND ready.stage = forebay.stage_ready()
             ORDER BY ready.rank, ready.id LIMIT greatest(workspaces.room, 0) FOR UPDATE SKIP LOCKED) next),
    -- A missing definition must not block its workspace's head: its item is claimed, then failed.
    with_key_room AS (
        SELECT candidate.*, definition.id IS NULL OR definition.deleted_at IS NOT NULL AS gone,
               CASE WHEN definition.deleted_at IS NOT NULL THEN NULL
                    WHEN definition.status <> 'ACTIVE' THEN 0
                    ELSE definition.concurrency END AS definition_limit,
               candidate.key IS NULL
               OR row_number() OVER (PARTITION BY candidate.definition_id, candidate.key
                                     ORDER BY candidate.rank, candidate.id)
                  + (SELECT count(*) FROM forebay.execution_queue holder
                      WHERE holder.shard = candidate.shard AND holder.workspace_id = candidate.workspace_id
                        AND holder.stage = forebay.stage_slot()
                        AND holder.workflow_definition_id = candidate.definition_id
                        AND holder.concurrency_key = candidate.key)
                  <= coalesce(definition.key_concurrency, 1) AS key_has_room
          FROM candidates candidate
          LEFT JOIN forebay.workflow_definition definition ON definition.id = candidate.definition_id),
    -- Items whose key has no room do not use up their definition's limit.
    with_grant AS (
        SELECT candidate.*, key_has_room AND (
               definition_limit IS NULL
               OR row_number() OVER (PARTITION BY definition_id, key_has_room ORDER BY rank, id)
                  + (SELECT count(*) FROM forebay.execution_queue holder
                      WHERE holder.shard = candidate.shard AND holder.workspace_id = candidate.workspace_id
                        AND holder.stage = forebay.stage_slot()
                        AND holder.workflow_definition_id = candidate.definition_id)
                  <= definition_limit) AS granted
          FROM with_key_room candidate),
    judged AS MATERIALIZED (
        SELECT candidate.*, execution.id IS NOT NULL AS begins, execution.version_id, execution.owner_epoch,
               execution.input, execution.trigger, execution.accepted_at, execution.deadline_at, execution.trace_context
          FROM with_grant candidate LEFT JOIN LATERAL (
            SELECT pending.id, pending.version_id, pending.owner_epoch, pending.input, pending.trigger,
                   pending.created_at AS accepted_at, pending.trace_context,
                   least(pending.deadline_at, v_now + make_interval(secs => pending.timeout_ms / 1000.0)) AS deadline_at
              FROM forebay.workflow_execution pending
             WHERE pending.id = candidate.id AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
               AND p_engine IS NOT NULL AND candidate.granted AND NOT candidate.gone
               FOR UPDATE SKIP LOCKED) execution ON true),
    per_workspace AS MATERIALIZED (
        SELECT judged.workspace_id, count(*) AS candidates, count(*) FILTER (WHERE granted)::int AS granted,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room) AS all_blocked_definitions,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room
                                                         AND NOT gated) AS newly_blocked_definitions,
               bool_or(NOT granted AND (gated OR NOT key_has_room)) AS put_back
          FROM judged GROUP BY judged.workspace_id),
    claimed AS (
        UPDATE forebay.execution_queue queued
           SET stage = forebay.stage_slot(), claim_id = p_claim, claimed_by = p_process, claimed_at = v_now,
               status = CASE WHEN queued.id = ANY (ARRAY(SELECT judged.id FROM judged WHERE begins)) THEN 'DISPATCHED'
                             ELSE 'CLAIMED' END,
               dispatched_at = CASE WHEN queued.id = ANY (ARRAY(SELECT judged.id FROM judged WHERE begins))
                                    THEN v_now END,
               gated = queued.gated OR queued.workflow_definition_id = ANY (
                   ARRAY(SELECT DISTINCT definition_id FROM judged WHERE definition_limit IS NOT NULL))
         WHERE queued.id = ANY (ARRAY(SELECT judged.id FROM judged WHERE granted)) AND queued.status = 'PENDING'),
    put_back AS (
        UPDATE forebay.execution_queue queued
           SET gated = true,
               stage = CASE WHEN queued.id = ANY (ARRAY(SELECT judged.id
                                                          FROM judged
                                                         WHERE NOT granted AND key_has_room))
                            THEN forebay.stage_waits_for_definition() ELSE forebay.stage_waits_for_key() END
         WHERE queued.id = ANY (ARRAY(SELECT judged.id
                                        FROM judged
                                       WHERE NOT granted AND (judged.gated OR NOT key_has_room)))
           AND queued.status = 'PENDING'),
    begun AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'RUNNING', engine = p_engine, owner = p_process, owner_epoch = owner_epoch + 1,
               started_at = v_now,
               deadline_at = least(execution.deadline_at, v_now + make_interval(secs => execution.timeout_ms / 1000.0))
         WHERE execution.id = ANY (ARRAY(SELECT judged.id FROM judged WHERE begins)) AND execution.status = 'PENDING'
        RETURNING execution.id, execution.workspace_id),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING'
          FROM begun
         HAVING count(*) > 0)
    SELECT 'item', judged.workspace_id, judged.id, judged.definition_id,
           coalesce(judged.version_id, not_begun.version_id), judged.attempt_count, judged.in_doubt, judged.gone,
           coalesce(not_begun.semantics > p_semantics, false), judged.begins, judged.owner_epoch + 1, judged.input,
           judged.trigger, judged.accepted_at, (extract(epoch FROM judged.deadline_at - v_now) * 1000)::bigint,
           NULL::int, NULL::int, NULL::boolean, NULL::boolean, NULL::uuid[], NULL::int,
           coalesce(judged.trace_context, not_begun.trace_context),
           (extract(epoch FROM v_now - judged.since) * 1000)::bigint
      FROM judged LEFT JOIN LATERAL (
            SELECT execution.version_id, execution.semantics, execution.trace_context
              FROM forebay.workflow_execution execution
             WHERE execution.id = judged.id AND NOT judged.begins LIMIT 1) not_begun ON true
     WHERE judged.granted
    UNION ALL
    SELECT 'workspace', workspaces.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           workspaces.running + coalesce(per_workspace.granted, 0), workspaces.max_running,
           NOT workspaces.closed AND (SELECT count(*) FROM (SELECT 1 FROM forebay.execution_queue ready
                WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id
                  AND ready.stage = forebay.stage_ready()
                LIMIT 1 + coalesce(per_workspace.candidates, 0)) seen) > coalesce(per_workspace.candidates, 0),
           coalesce(per_workspace.put_back, false),
           -- If this claim granted anything, only definitions whose items were never limited before: claims put the
           -- others back one by one. If it granted nothing, every one: a long backlog may stand in front.
           CASE WHEN per_workspace.granted > 0 THEN per_workspace.newly_blocked_definitions
                ELSE per_workspace.all_blocked_definitions END,
           workspaces.weight::int, NULL, NULL
      FROM workspaces LEFT JOIN per_workspace ON per_workspace.workspace_id = workspaces.id
    UNION ALL
    SELECT 'busy', asked.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM unnest(p_workspaces) AS asked(id)
     WHERE NOT forebay.shard_of(asked.id) = ANY (v_shards);
END $fn$;
