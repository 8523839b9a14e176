-- Lists and counts that must walk an index and stop, whatever the statistics of the moment say: a
-- table that was just filled looks small, and would be read whole and sorted.

-- A page of executions, newest first: those with an id of p_ids, else of the definitions, else of the
-- workspace, else of all; the workspace holds in each. Of the statuses, not before p_from, before the
-- place (p_before, p_before_id). Each branch walks an index of its own, once a status, and only one
-- of them runs; what an execution holds is read for the page alone. Only roots are listed, but by id.
CREATE OR REPLACE FUNCTION forebay_r1.list_executions(
    p_workspace uuid, p_definitions uuid[], p_statuses text[], p_from timestamptz, p_before timestamptz,
    p_before_id uuid, p_limit bigint, p_ids uuid[])
RETURNS TABLE (id uuid, workspace_id uuid, workflow_definition_id uuid, version_id uuid, status text, error jsonb,
    priority smallint, concurrency_key text, created_at timestamptz, started_at timestamptz, completed_at timestamptz,
    duration_ms bigint, cancel_requested_at timestamptz, version_number int, definition_name text)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
    SELECT execution.id, execution.workspace_id, execution.workflow_definition_id, execution.version_id,
           execution.status, execution.error, execution.priority, execution.concurrency_key, execution.created_at,
           execution.started_at, execution.completed_at, execution.duration_ms, execution.cancel_requested_at,
           version.number AS version_number, definition.name AS definition_name
    FROM (
        SELECT found.id, found.created_at FROM (
            SELECT found.id, found.created_at
            FROM unnest(p_statuses) AS asked(status) CROSS JOIN LATERAL (
                SELECT execution.id, execution.created_at FROM forebay.workflow_execution execution
                WHERE p_ids IS NULL AND p_definitions IS NULL AND execution.depth < 1
                  AND execution.workspace_id = p_workspace AND execution.status = asked.status COLLATE "C"
                  AND execution.created_at >= coalesce(p_from, '-infinity')
                  AND (execution.created_at, execution.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY execution.created_at DESC, execution.id DESC LIMIT p_limit) found
            UNION ALL
            SELECT found.id, found.created_at
            FROM unnest(p_definitions) AS wanted(definition)
            CROSS JOIN unnest(p_statuses) AS asked(status)
            CROSS JOIN LATERAL (
                SELECT execution.id, execution.created_at FROM forebay.workflow_execution execution
                WHERE p_ids IS NULL AND execution.depth < 1
                  AND execution.workflow_definition_id = wanted.definition
                  AND execution.status = asked.status COLLATE "C"
                  AND execution.workspace_id = coalesce(p_workspace, execution.workspace_id)
                  AND execution.created_at >= coalesce(p_from, '-infinity')
                  AND (execution.created_at, execution.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY execution.created_at DESC, execution.id DESC LIMIT p_limit) found
            UNION ALL
            SELECT found.id, found.created_at
            FROM unnest(p_statuses) AS asked(status) CROSS JOIN LATERAL (
                SELECT execution.id, execution.created_at FROM forebay.workflow_execution execution
                WHERE p_ids IS NULL AND p_definitions IS NULL AND p_workspace IS NULL AND execution.depth < 1
                  AND execution.status = asked.status COLLATE "C"
                  AND execution.created_at >= coalesce(p_from, '-infinity')
                  AND (execution.created_at, execution.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY execution.created_at DESC, execution.id DESC LIMIT p_limit) found
            UNION ALL
            SELECT execution.id, execution.created_at
            FROM forebay.workflow_execution execution
            WHERE execution.id = ANY (p_ids)
              AND execution.workspace_id = coalesce(p_workspace, execution.workspace_id)
              AND execution.status = ANY (p_statuses)
              AND execution.created_at >= coalesce(p_from, '-infinity')
              AND (execution.created_at, execution.id) < (coalesce(p_before, 'infinity'), p_before_id)) found
        ORDER BY found.created_at DESC, found.id DESC LIMIT p_limit) page
    JOIN forebay.workflow_execution execution ON execution.id = page.id
    LEFT JOIN forebay.workflow_definition_version version ON version.id = execution.version_id
    LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
    ORDER BY page.created_at DESC, page.id DESC
$fn$;

-- What a living workspace may use, uses and has waiting. Every count stops at p_counted, and the oldest
-- is looked for among as many: the first in line of those that are ready, any of those behind a gate.
CREATE OR REPLACE FUNCTION forebay_r1.capacity(p_workspace uuid, p_counted bigint)
RETURNS TABLE (max_running int, paused boolean, running int, ready int, waits_for_key int, waits_for_definition int,
    delayed int, failed int, oldest_s float8)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
    SELECT coalesce(workspace.limit_override, tier.max_running) AS max_running, workspace.paused,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_slot()
             LIMIT p_counted) counted) AS running,
           ready.count AS ready, keyed.count AS waits_for_key, gated.count AS waits_for_definition,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_delayed()
             LIMIT p_counted) counted) AS delayed,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue item
             WHERE item.workspace_id = workspace.id AND item.stage = forebay.stage_failed()
             LIMIT p_counted) counted) AS failed,
           extract(epoch FROM clock_timestamp() - least(ready.oldest, keyed.oldest, gated.oldest))::float8 AS oldest_s
      FROM forebay.workspace JOIN forebay.tier ON tier.name = workspace.tier
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_ready()
             ORDER BY item.rank, item.id LIMIT p_counted) counted) ready
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_waits_for_key()
             LIMIT p_counted) counted) keyed
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(counted.since) AS oldest FROM (
            SELECT greatest(item.created_at, item.available_at) AS since FROM forebay.execution_queue item
             WHERE item.shard = workspace.shard AND item.workspace_id = workspace.id
               AND item.stage = forebay.stage_waits_for_definition()
             LIMIT p_counted) counted) gated
     WHERE workspace.id = p_workspace AND workspace.deleted_at IS NULL
$fn$;
