-- Claims the next items of some workspaces, and begins them if the claimer is also the runner.
-- docs/explanation/admission.md explains why it is strict.
--
-- The guard is the advisory lock of each workspace's shard, taken in its own statement. So the snapshot of the claim
-- statement is younger than the lock, and counts every slot that was ever committed in that shard. If one statement
-- took the lock and claimed, its snapshot would be older than the lock, and the lock would protect nothing. A call for
-- one shard waits for its lock. A call for several shards waits for none, and returns the shards that are busy. So no
-- transaction waits for a lock while it holds another, and one contended shard does not delay the others.
--
-- p_engine names the engine if the caller itself runs what it claims. Claiming, beginning and DISPATCHED are then one
-- commit. Execution rows are locked with SKIP LOCKED, because every other function locks in the order execution, queue
-- item, shard. If an execution is locked by another transaction, its item stays CLAIMED and begins in a later call.
--
-- p_wanted: at most so many items of each workspace. p_semantics: the newest rules of executions that the caller knows.
-- An item with newer rules is claimed but does not begin, and is returned with `newer`.
--
-- The slots are counted, and the ready items read, from the workspace's mark on (functions/mark.sql), because an open
-- snapshot keeps the index entries of all items that ended since. Each claim draws a number under the lock, and its
-- items keep that number as long as they hold their slot. So every slot has a greater number than the mark, or one that
-- the mark lists. The ready index is ordered by priority first: within a priority ranks are arrival times, so all that
-- is below the mark has been claimed. A claim reads the first items of each priority, and merges them by turn: an item
-- that was moved up to the mark has its turn by the rank that it had before.
--
-- p_protocol is the version of the claim's rules that the caller uses. If the database (forebay.protocol) uses another
-- version, the claim is refused.
--
-- The statement reads top to bottom:
--   workspaces        limits and slots taken of each workspace, how much room it has, and its mark
--   candidates        its next ready items, at most as many as it has room for, locked
--   with_key_room     plus: is the definition deleted, how many of it may run, does its key have room
--   with_grant        plus: is it granted, because its key and its definition have room
--   with_execution    plus, for those that begin in this commit: the execution, locked
--   per_workspace     per workspace: how many were granted, and which definitions block items
--   claimed           granted items hold a slot from here on
--   moved_back        items that had passed a limit that is full now are blocked again
--   begun, logged     executions that run from here on, and their entries in the change log
--
-- Returns one row per claimed item (kind 'item') and one row per requested workspace. A row of kind 'workspace' has the
-- slots taken (`running`) and the limit after this claim, and whether more items are ready. It also has whether any
-- item was blocked again, and the definitions whose ready items are blocked. A row of kind 'busy' is a workspace whose
-- shard was locked.
--
-- Ready items that a limit blocks for the first time stay ready. sql/execution_queue/block.sql moves them in bulk
-- later. If the claim moved them, its cost would grow with the backlog. The column waited_ms is how long an item was
-- ready before it was claimed.
--
-- `limited` says that a limit of its definition or key has applied to the item. So if the item is ready, it has passed
-- that limit. This function counts every slot and does not need the flag for that; forebay.unblock counts by it. An
-- item with a key is always limited.
--
-- Each step adds columns to the previous one, and rows are changed by an array of their ids. A join could be planned
-- badly while the statistics say that the queue is empty: it would read the whole table. Every changed row was locked
-- before, in the status that the change leaves.
CREATE OR REPLACE FUNCTION forebay_r1.claim(
    p_workspaces uuid[], p_wanted int[], p_claim uuid, p_process uuid, p_engine text, p_semantics int, p_protocol int)
RETURNS TABLE (
    kind text, workspace uuid, item uuid, definition uuid, version uuid, attempts int, in_doubt boolean,
    definition_deleted boolean, newer boolean, begun boolean, epoch bigint, input jsonb, trigger jsonb,
    created timestamptz, deadline_in_ms bigint,
    running int, max_running int, more boolean, blocked_again boolean, blocked_definitions uuid[], weight int,
    trace text, waited_ms bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_shards int[] := ARRAY(SELECT DISTINCT forebay.shard_of(requested.id)
                              FROM unnest(p_workspaces) AS requested(id) ORDER BY 1);
    v_locked int[] := v_shards;
    v_now timestamptz;
    v_number bigint;
    v_items bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'forebay_r1.claim needs the isolation level READ COMMITTED';
    END IF;
    IF cardinality(v_shards) = 1 THEN
        PERFORM pg_advisory_xact_lock(forebay.lock_shard(), v_shards[1]);
    ELSE
        v_locked := ARRAY(SELECT shard
                            FROM unnest(v_shards) AS shard
                           WHERE pg_try_advisory_xact_lock(forebay.lock_shard(), shard));
    END IF;
    -- The protocol is read under the lock: raising it takes every shard's lock, so it cannot change during this claim.
    IF p_protocol IS DISTINCT FROM (SELECT number FROM forebay.protocol) THEN
        RAISE EXCEPTION 'a claim with protocol % is refused: this database uses protocol %', p_protocol,
            (SELECT number FROM forebay.protocol)
            USING ERRCODE = 'FB001', HINT = 'Replace this process by one of the release that the others run.';
    END IF;
    -- All items of one claim get the same claimed_at; the list of holders orders by (claimed_at, id).
    v_now := clock_timestamp();
    v_number := nextval('forebay.claim_number');
    -- The number must be above the mark. If the sequence was reset, it may not be, so the mark is reset too.
    UPDATE forebay.claim_mark
       SET slots_after = 0, slots_known = '{}'
     WHERE workspace_id = ANY (p_workspaces) AND forebay.shard_of(workspace_id) = ANY (v_shards)
       AND slots_after >= v_number;
    RETURN QUERY
    WITH workspaces AS MATERIALIZED (
        SELECT workspace.id, workspace.shard, workspace.weight, slots.running, slots.definitions, slots.keys,
               coalesce(mark.ready_from, '{0,0,0,0,0}') AS ready_from,
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
          LEFT JOIN LATERAL (SELECT * FROM forebay.claim_mark WHERE claim_mark.workspace_id = request.id LIMIT 1) mark
            ON true
         CROSS JOIN LATERAL (
            SELECT count(*)::int AS running, array_agg(holder.definition_id) AS definitions,
                   array_agg(holder.definition_id || holder.key) FILTER (WHERE holder.key IS NOT NULL) AS keys
              FROM forebay_r1.holders(workspace.shard, workspace.id, mark.slots_after, mark.slots_known) holder) slots
         WHERE workspace.shard = ANY (v_locked)),
    candidates AS MATERIALIZED (
        SELECT next.* FROM workspaces CROSS JOIN LATERAL (
            SELECT first.* FROM (VALUES (1), (2), (3), (4), (5)) AS level(priority) CROSS JOIN LATERAL (
                SELECT ready.id, ready.workspace_id, ready.workflow_definition_id AS definition_id,
                       ready.concurrency_key AS key, ready.priority, ready.rank,
                       least(ready.rank, forebay_r1.own_rank(ready.created_at, ready.priority)) AS turn,
                       ready.limited, ready.attempt_count, ready.in_doubt,
                       greatest(ready.created_at, ready.available_at) AS since
                  FROM forebay.execution_queue ready
                 WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id
                   AND ready.stage = forebay.stage_ready() AND ready.priority = level.priority
                   AND ready.rank >= workspaces.ready_from[level.priority]
                 ORDER BY ready.rank, ready.id LIMIT greatest(workspaces.room, 0) FOR UPDATE SKIP LOCKED) first
             ORDER BY first.turn, first.id LIMIT greatest(workspaces.room, 0)) next),
    -- A missing definition must not block the head of its workspace's queue: its item is claimed, and the caller fails
    -- it. A paused definition has the limit 0.
    with_key_room AS (
        SELECT candidate.*, definition.id IS NULL OR definition.deleted_at IS NOT NULL AS definition_deleted,
               CASE WHEN definition.deleted_at IS NOT NULL THEN NULL
                    WHEN definition.status <> 'ACTIVE' THEN 0
                    ELSE definition.concurrency END AS definition_limit,
               candidate.key IS NULL
               OR row_number() OVER (PARTITION BY candidate.definition_id, candidate.key
                                     ORDER BY candidate.turn, candidate.id)
                  + (SELECT coalesce(cardinality(array_positions(workspaces.keys,
                                                                 candidate.definition_id || candidate.key)), 0)
                       FROM workspaces WHERE workspaces.id = candidate.workspace_id)
                  <= coalesce(definition.key_concurrency, 1) AS key_has_room
          FROM candidates candidate
          LEFT JOIN forebay.workflow_definition definition ON definition.id = candidate.definition_id),
    -- Items whose key has no room do not use up their definition's limit.
    with_grant AS (
        SELECT candidate.*, key_has_room AND (
               definition_limit IS NULL
               OR row_number() OVER (PARTITION BY definition_id, key_has_room ORDER BY turn, id)
                  + (SELECT coalesce(cardinality(array_positions(workspaces.definitions, candidate.definition_id)), 0)
                       FROM workspaces WHERE workspaces.id = candidate.workspace_id)
                  <= definition_limit) AS granted
          FROM with_key_room candidate),
    with_execution AS MATERIALIZED (
        SELECT candidate.*, execution.id IS NOT NULL AS begins, execution.version_id, execution.owner_epoch,
               execution.input, execution.trigger, execution.accepted_at, execution.deadline_at, execution.trace_context
          FROM with_grant candidate LEFT JOIN LATERAL (
            SELECT pending.id, pending.version_id, pending.owner_epoch, pending.input, pending.trigger,
                   pending.created_at AS accepted_at, pending.trace_context,
                   least(pending.deadline_at, v_now + make_interval(secs => pending.timeout_ms / 1000.0)) AS deadline_at
              FROM forebay.workflow_execution pending
             WHERE pending.id = candidate.id AND pending.status = 'PENDING' AND pending.semantics <= p_semantics
               AND p_engine IS NOT NULL AND candidate.granted AND NOT candidate.definition_deleted
               FOR UPDATE SKIP LOCKED) execution ON true),
    per_workspace AS MATERIALIZED (
        SELECT with_execution.workspace_id, count(*) AS candidate_count,
               ARRAY[min(rank) FILTER (WHERE priority = 1), min(rank) FILTER (WHERE priority = 2),
                     min(rank) FILTER (WHERE priority = 3), min(rank) FILTER (WHERE priority = 4),
                     min(rank) FILTER (WHERE priority = 5)] AS first_ranks,
               count(*) FILTER (WHERE granted)::int AS granted,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room) AS all_blocked_definitions,
               array_agg(DISTINCT definition_id) FILTER (WHERE NOT granted AND key_has_room
                                                         AND NOT limited) AS newly_blocked_definitions,
               bool_or(NOT granted AND (limited OR NOT key_has_room)) AS any_moved_back
          FROM with_execution GROUP BY with_execution.workspace_id),
    claimed AS (
        UPDATE forebay.execution_queue queued
           SET stage = forebay.stage_slot(), claim_number = v_number, claim_id = p_claim, claimed_by = p_process,
               claimed_at = v_now,
               status = CASE WHEN queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins)) THEN 'DISPATCHED'
                             ELSE 'CLAIMED' END,
               dispatched_at = CASE WHEN queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins))
                                    THEN v_now END,
               owner = CASE WHEN queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins)) THEN p_process END,
               limited = queued.limited OR queued.workflow_definition_id = ANY (
                   ARRAY(SELECT DISTINCT definition_id FROM with_execution WHERE definition_limit IS NOT NULL))
         WHERE queued.id = ANY (ARRAY(SELECT id FROM with_execution WHERE granted)) AND queued.status = 'PENDING'),
    moved_back AS (
        UPDATE forebay.execution_queue queued
           SET limited = true, rank = least(queued.rank, forebay_r1.own_rank(queued.created_at, queued.priority)),
               stage = CASE WHEN queued.id = ANY (ARRAY(SELECT with_execution.id
                                                          FROM with_execution
                                                         WHERE NOT granted AND key_has_room))
                            THEN forebay.stage_waits_for_definition() ELSE forebay.stage_waits_for_key() END
         WHERE queued.id = ANY (ARRAY(SELECT with_execution.id
                                        FROM with_execution
                                       WHERE NOT granted AND (with_execution.limited OR NOT key_has_room)))
           AND queued.status = 'PENDING'),
    begun AS (
        UPDATE forebay.workflow_execution execution
           SET status = 'RUNNING', engine = p_engine, owner = p_process, owner_epoch = owner_epoch + 1,
               started_at = v_now,
               deadline_at = least(execution.deadline_at, v_now + make_interval(secs => execution.timeout_ms / 1000.0))
         WHERE execution.id = ANY (ARRAY(SELECT id FROM with_execution WHERE begins)) AND execution.status = 'PENDING'
        RETURNING execution.id, execution.workspace_id),
    logged AS (
        INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(begun.id), array_agg(begun.workspace_id), 'RUNNING'
          FROM begun HAVING count(*) > 0)
    SELECT 'item', candidate.workspace_id, candidate.id, candidate.definition_id,
           coalesce(candidate.version_id, not_begun.version_id), candidate.attempt_count, candidate.in_doubt,
           candidate.definition_deleted, coalesce(not_begun.semantics > p_semantics, false), candidate.begins,
           candidate.owner_epoch + 1, candidate.input, candidate.trigger, candidate.accepted_at,
           (extract(epoch FROM candidate.deadline_at - v_now) * 1000)::bigint,
           NULL::int, NULL::int, NULL::boolean, NULL::boolean, NULL::uuid[], NULL::int,
           coalesce(candidate.trace_context, not_begun.trace_context),
           (extract(epoch FROM v_now - candidate.since) * 1000)::bigint
      FROM with_execution candidate LEFT JOIN LATERAL (
            SELECT execution.version_id, execution.semantics, execution.trace_context
              FROM forebay.workflow_execution execution
             WHERE execution.id = candidate.id AND NOT candidate.begins LIMIT 1) not_begun ON true
     WHERE candidate.granted
    UNION ALL
    SELECT 'workspace', workspaces.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           workspaces.running + coalesce(per_workspace.granted, 0), workspaces.max_running,
           -- Counted in this statement's snapshot, in which the candidates are still ready.
           NOT workspaces.closed AND (SELECT count(*) FROM (
               SELECT 1 FROM (VALUES (1), (2), (3), (4), (5)) AS level(priority) CROSS JOIN LATERAL (
                    SELECT 1 FROM forebay.execution_queue ready
                     WHERE ready.shard = workspaces.shard AND ready.workspace_id = workspaces.id
                       AND ready.stage = forebay.stage_ready() AND ready.priority = level.priority
                       AND ready.rank >= coalesce(per_workspace.first_ranks[level.priority],
                                                  workspaces.ready_from[level.priority])
                     -- Ordered, so that no plan reads all ready items first.
                     ORDER BY ready.rank, ready.id LIMIT 1 + coalesce(per_workspace.candidate_count, 0)) of_priority
                LIMIT 1 + coalesce(per_workspace.candidate_count, 0)) seen)
               > coalesce(per_workspace.candidate_count, 0),
           coalesce(per_workspace.any_moved_back, false),
           -- If this claim granted any item, only definitions that block items for the first time are returned; later
           -- claims block the other items again one by one. If it granted none, all blocking definitions are returned,
           -- because a long blocked backlog may be at the head of the queue.
           CASE WHEN per_workspace.granted > 0 THEN per_workspace.newly_blocked_definitions
                ELSE per_workspace.all_blocked_definitions END,
           workspaces.weight::int, NULL, NULL
      FROM workspaces LEFT JOIN per_workspace ON per_workspace.workspace_id = workspaces.id
    UNION ALL
    SELECT 'busy', requested.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM unnest(p_workspaces) AS requested(id)
     WHERE NOT forebay.shard_of(requested.id) = ANY (v_locked);
    -- On average once per claims_per_mark() items of a workspace: a random item of this claim says whose mark moves.
    GET DIAGNOSTICS v_items = ROW_COUNT;
    v_items := v_items - cardinality(p_workspaces);
    IF random() * forebay_r1.claims_per_mark() < v_items THEN
        PERFORM forebay_r1.move_mark(mine.workspace_id, v_number, v_now)
           FROM (SELECT claimed.workspace_id FROM unnest(p_workspaces) AS requested(id)
                   JOIN forebay.execution_queue claimed
                     ON claimed.shard = forebay.shard_of(requested.id) AND claimed.workspace_id = requested.id
                    AND claimed.claim_number = v_number AND claimed.claim_id = p_claim
                  ORDER BY random() LIMIT 1) mine;
    END IF;
END $fn$;
