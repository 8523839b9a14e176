-- Lists and counts that must walk an index and stop early, whatever the current statistics say. To the planner, a table
-- that was just filled looks small, so it would read and sort the whole table.

-- The first id that is made at this time, and the time at which an id was made. Ids of executions begin with that time,
-- in ms.
CREATE OR REPLACE FUNCTION forebay_r1.id_at(p_at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $fn$
    SELECT (lpad(to_hex(greatest(floor(extract(epoch FROM p_at) * 1000)::bigint, 0)), 12, '0')
            || '00000000000000000000')::uuid
$fn$;
CREATE OR REPLACE FUNCTION forebay_r1.time_of(p_id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $fn$
    SELECT 'epoch'::timestamptz
           + (('x' || replace(left(p_id::text, 13), '-', ''))::bit(48)::bigint) * interval '1 millisecond'
$fn$;

-- The ids that a list of executions reads, newest first, before p_before and from p_from on. At most p_most of them,
-- whatever the filter. They are, in this order of preference:
--
--   those of p_ids
--   with p_all   all executions of p_definitions, of p_workspace, or of everybody
--   otherwise    open executions, from their queue items, and those with another outcome than COMPLETED, from
--                execution_outcome: so a rare status is found among any number of executions
--
-- Not every one of them matches the filter of the list: the caller reads their rows.
--
-- Rows are compared and ordered by all columns of their index, even by those that are equal. Otherwise the planner
-- could walk the ids of everybody and filter them, while the statistics say that there are few.
CREATE OR REPLACE FUNCTION forebay_r1.listed_ids(
    p_workspace uuid, p_definitions uuid[], p_statuses text[], p_all boolean, p_from uuid, p_before uuid, p_most bigint,
    p_ids uuid[])
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
BEGIN
    IF p_ids IS NOT NULL THEN
        RETURN QUERY SELECT given.id FROM unnest(p_ids) AS given(id)
         WHERE given.id < p_before AND given.id >= p_from ORDER BY given.id DESC LIMIT p_most;
    ELSIF p_all AND p_definitions IS NOT NULL THEN
        RETURN QUERY
        SELECT found.id FROM unnest(p_definitions) AS wanted(id)
         CROSS JOIN LATERAL (
            SELECT execution.id FROM forebay.workflow_execution execution
             WHERE execution.depth = 0 AND (execution.workflow_definition_id, execution.id) < (wanted.id, p_before)
               AND (execution.workflow_definition_id, execution.id) >= (wanted.id, p_from)
             ORDER BY execution.workflow_definition_id DESC, execution.id DESC LIMIT p_most) found
         ORDER BY found.id DESC LIMIT p_most;
    ELSIF p_all AND p_workspace IS NOT NULL THEN
        RETURN QUERY
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.depth = 0 AND (execution.workspace_id, execution.id) < (p_workspace, p_before)
           AND (execution.workspace_id, execution.id) >= (p_workspace, p_from)
         ORDER BY execution.workspace_id DESC, execution.id DESC LIMIT p_most;
    ELSIF p_all THEN
        RETURN QUERY
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.depth = 0 AND execution.id < p_before AND execution.id >= p_from
         ORDER BY execution.id DESC LIMIT p_most;
    ELSE
        RETURN QUERY
        SELECT found.id FROM (
            SELECT open.id FROM forebay_r1.open_ids(p_workspace, p_statuses, p_from, p_before, p_most) AS open(id)
            UNION
            SELECT other.execution_id FROM unnest(p_statuses) AS requested(status) CROSS JOIN LATERAL (
                SELECT outcome.execution_id FROM forebay.execution_outcome outcome
                 WHERE (outcome.workspace_id, outcome.status, outcome.execution_id)
                       < (p_workspace, requested.status, p_before)
                   AND (outcome.workspace_id, outcome.status, outcome.execution_id)
                       >= (p_workspace, requested.status, p_from)
                 ORDER BY outcome.workspace_id DESC, outcome.status DESC, outcome.execution_id DESC LIMIT p_most) other
            UNION
            SELECT other.execution_id FROM unnest(p_statuses) AS requested(status) CROSS JOIN LATERAL (
                SELECT outcome.execution_id FROM forebay.execution_outcome outcome
                 WHERE p_workspace IS NULL AND outcome.status = requested.status
                   AND outcome.execution_id < p_before AND outcome.execution_id >= p_from
                 ORDER BY outcome.execution_id DESC LIMIT p_most) other) found
         ORDER BY found.id DESC LIMIT p_most;
    END IF;
END $fn$;

-- The items of a workspace that wait for a slot, in no order, at most p_most.
CREATE OR REPLACE FUNCTION forebay_r1.waiting_ids(p_workspace uuid, p_most bigint) RETURNS SETOF uuid
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
    SELECT item.id FROM unnest(ARRAY[forebay.stage_ready(), forebay.stage_delayed(), forebay.stage_waits_for_key(),
                                     forebay.stage_waits_for_definition()]) AS waiting(stage)
     CROSS JOIN LATERAL (
        SELECT ready.id FROM forebay.execution_queue ready
         WHERE waiting.stage = forebay.stage_ready() AND ready.stage = forebay.stage_ready()
           AND ready.shard = forebay.shard_of(p_workspace)::smallint AND ready.workspace_id = p_workspace
        UNION ALL
        SELECT delayed.id FROM forebay.execution_queue delayed
         WHERE waiting.stage = forebay.stage_delayed() AND delayed.stage = forebay.stage_delayed()
           AND delayed.shard = forebay.shard_of(p_workspace)::smallint AND delayed.workspace_id = p_workspace
        UNION ALL
        SELECT keyed.id FROM forebay.execution_queue keyed
         WHERE waiting.stage = forebay.stage_waits_for_key() AND keyed.stage = forebay.stage_waits_for_key()
           AND keyed.shard = forebay.shard_of(p_workspace)::smallint AND keyed.workspace_id = p_workspace
        UNION ALL
        SELECT limited.id FROM forebay.execution_queue limited
         WHERE waiting.stage = forebay.stage_waits_for_definition()
           AND limited.stage = forebay.stage_waits_for_definition()
           AND limited.shard = forebay.shard_of(p_workspace)::smallint AND limited.workspace_id = p_workspace) item
     LIMIT p_most
$fn$;

-- The ids of queue items whose executions may be PENDING or RUNNING, newest first, at most p_most. All slots of a
-- workspace, or of everybody, are read, because nothing else bounds them but their limits; and all items of a workspace
-- that wait, because the caller has checked that they are few.
CREATE OR REPLACE FUNCTION forebay_r1.open_ids(
    p_workspace uuid, p_statuses text[], p_from uuid, p_before uuid, p_most bigint)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
BEGIN
    IF 'PENDING' = ANY (p_statuses) OR 'RUNNING' = ANY (p_statuses) THEN
        RETURN QUERY
        (SELECT slot.id FROM forebay.execution_queue slot
          WHERE slot.shard = forebay.shard_of(p_workspace)::smallint AND slot.workspace_id = p_workspace
            AND slot.claim_number IS NOT NULL AND slot.id < p_before AND slot.id >= p_from
          ORDER BY slot.id DESC LIMIT p_most)
        UNION ALL
        (SELECT slot.id FROM forebay.execution_queue slot
          WHERE p_workspace IS NULL AND slot.stage = forebay.stage_slot() AND slot.id < p_before AND slot.id >= p_from
          ORDER BY slot.id DESC LIMIT p_most);
    END IF;
    IF 'PENDING' = ANY (p_statuses) THEN
        RETURN QUERY
        (SELECT waiting.id FROM forebay_r1.waiting_ids(p_workspace, NULL) AS waiting(id)
          WHERE p_workspace IS NOT NULL AND waiting.id < p_before AND waiting.id >= p_from
          ORDER BY waiting.id DESC LIMIT p_most)
        UNION ALL
        -- Of everybody: at most p_most items, whatever their stage.
        (SELECT item.id FROM forebay.execution_queue item
          WHERE p_workspace IS NULL AND item.id < p_before AND item.id >= p_from
          ORDER BY item.id DESC LIMIT p_most);
    END IF;
END $fn$;

-- A page of executions, newest first: those with the ids p_ids, else those of p_definitions, else those of p_workspace,
-- else all. If p_workspace is given, executions must always belong to it. Filters: p_statuses, created not before
-- p_from and before p_until, with an id before p_before. Children are listed only by id.
--
-- Reads at most p_most executions. The row with `last` shows where reading stopped, even if it is not `wanted`.
-- Payloads are read only for the rows of the page.
--
-- Ids follow the clocks of the processes that make them, a little before the time at which the database accepts the
-- execution. So p_from also reads ids of a minute before, and p_until those of a second after.
CREATE OR REPLACE FUNCTION forebay_r1.list_executions(
    p_workspace uuid, p_definitions uuid[], p_statuses text[], p_from timestamptz, p_until timestamptz,
    p_before uuid, p_limit bigint, p_ids uuid[], p_most bigint)
RETURNS TABLE (id uuid, workspace_id uuid, workflow_definition_id uuid, version_id uuid, status text, error jsonb,
    priority smallint, concurrency_key text, created_at timestamptz, started_at timestamptz, completed_at timestamptz,
    duration_ms bigint, cancel_requested_at timestamptz, version_number int, definition_name text, wanted boolean,
    last boolean)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_from uuid := coalesce(forebay_r1.id_at(p_from - interval '1 minute'), '00000000-0000-0000-0000-000000000000');
    v_before uuid := coalesce(least(p_before, forebay_r1.id_at(p_until + interval '1 second')),
                              'ffffffff-ffff-ffff-ffff-ffffffffffff');
    -- A page without filters is full as soon as p_limit executions are read.
    v_step bigint := least(p_limit, p_most);
    v_read uuid[];
    v_wanted uuid[] := '{}';
    v_left bigint := p_most;
    -- Where reading stopped; null: at the end of the list.
    v_last uuid;
    -- A definition belongs to one workspace, so fewer executions are read.
    v_workspace uuid := coalesce(p_workspace, CASE WHEN cardinality(p_definitions) = 1 THEN (
        SELECT definition.workspace_id FROM forebay.workflow_definition definition
         WHERE definition.id = p_definitions[1]) END);
    -- If many items of the workspace wait, they are most of its newest executions, which come in the order of the list.
    v_all boolean := 'COMPLETED' = ANY (p_statuses) OR ('PENDING' = ANY (p_statuses) AND v_workspace IS NOT NULL AND
        (SELECT count(*) FROM forebay_r1.waiting_ids(v_workspace, p_most)) >= p_most);
BEGIN
    WHILE cardinality(p_definitions) > 0 IS NOT FALSE LOOP
        v_read := ARRAY(SELECT listed.id
                          FROM forebay_r1.listed_ids(v_workspace, p_definitions, p_statuses, v_all, v_from,
                                                     v_before, v_step, p_ids) AS listed(id));
        v_wanted := v_wanted || ARRAY(
            SELECT execution.id FROM unnest(v_read) WITH ORDINALITY AS read(id, ord)
             CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution stored WHERE stored.id = read.id
                                  LIMIT 1) execution
             WHERE execution.status = ANY (p_statuses) AND (execution.depth = 0 OR p_ids IS NOT NULL)
               AND execution.workspace_id = coalesce(p_workspace, execution.workspace_id)
               AND (p_definitions IS NULL OR execution.workflow_definition_id = ANY (p_definitions))
               AND execution.created_at >= coalesce(p_from, '-infinity')
               AND execution.created_at < coalesce(p_until, 'infinity')
             ORDER BY read.ord);
        EXIT WHEN cardinality(v_read) < v_step OR cardinality(v_wanted) >= p_limit;
        v_before := v_read[cardinality(v_read)];
        v_left := v_left - v_step;
        IF v_left <= 0 THEN
            v_last := v_before;
            EXIT;
        END IF;
        v_step := least(v_step * 4, v_left);
    END LOOP;
    RETURN QUERY
    SELECT execution.id, execution.workspace_id, execution.workflow_definition_id, execution.version_id,
           execution.status, execution.error, execution.priority, execution.concurrency_key, execution.created_at,
           execution.started_at, execution.completed_at, execution.duration_ms, execution.cancel_requested_at,
           version.number, definition.name, true, false
      FROM unnest(v_wanted[1:p_limit]) AS page(id)
     CROSS JOIN LATERAL (SELECT * FROM forebay.workflow_execution stored WHERE stored.id = page.id LIMIT 1) execution
      LEFT JOIN forebay.workflow_definition_version version ON version.id = execution.version_id
      LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
     ORDER BY execution.id DESC;
    IF v_last IS NOT NULL THEN
        RETURN QUERY SELECT v_last, NULL::uuid, NULL::uuid, NULL::uuid, NULL, NULL::jsonb, NULL::smallint, NULL,
            NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::bigint, NULL::timestamptz, NULL::int, NULL,
            false, true;
    END IF;
END $fn$;

-- What a workspace may use, what it uses, and its backlog. Every count stops at p_counted, and so does the search for
-- the oldest item: among the first ready items by priority and rank, and among any blocked ones.
CREATE OR REPLACE FUNCTION forebay_r1.capacity(p_workspace uuid, p_counted bigint)
RETURNS TABLE (max_running int, paused boolean, running int, ready int, waits_for_key int, waits_for_definition int,
    delayed int, failed int, oldest_s float8)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
    SELECT coalesce(workspace.limit_override, tier.max_running) AS max_running, workspace.paused,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.claim_number IS NOT NULL
             LIMIT p_counted) counted) AS running,
           ready.count AS ready, by_key.count AS waits_for_key, by_definition.count AS waits_for_definition,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_delayed()
             LIMIT p_counted) counted) AS delayed,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.workspace_id = workspace.id AND item.stage = forebay.stage_failed()
             LIMIT p_counted) counted) AS failed,
           extract(epoch FROM clock_timestamp() - least(ready.oldest, by_key.oldest, by_definition.oldest))::float8
               AS oldest_s
      FROM forebay.workspace JOIN forebay.tier ON tier.name = workspace.tier
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT first.since FROM generate_series(1, 5) AS level(priority) CROSS JOIN LATERAL (
                SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
                 WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
                   AND item.stage = forebay.stage_ready() AND item.priority = level.priority
                 ORDER BY item.rank, item.id LIMIT p_counted) first
             LIMIT p_counted) counted) ready
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_waits_for_key()
             LIMIT p_counted) counted) by_key
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_waits_for_definition()
             LIMIT p_counted) counted) by_definition
     WHERE workspace.id = p_workspace AND workspace.deleted_at IS NULL
$fn$;
