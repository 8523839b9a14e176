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
    SELECT e.id, e.workspace_id, e.workflow_definition_id, e.version_id, e.status, e.error, e.priority, e.concurrency_key,
           e.created_at, e.started_at, e.completed_at, e.duration_ms, e.cancel_requested_at,
           v.number AS version_number, d.name AS definition_name
    FROM (
        SELECT f.id, f.created_at FROM (
            SELECT p.id, p.created_at
            FROM unnest(p_statuses) AS s(status) CROSS JOIN LATERAL (
                SELECT e.id, e.created_at FROM forebay.workflow_execution e
                WHERE p_ids IS NULL AND p_definitions IS NULL AND e.depth < 1
                  AND e.workspace_id = p_workspace AND e.status = s.status COLLATE "C"
                  AND e.created_at >= coalesce(p_from, '-infinity')
                  AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit) p
            UNION ALL
            SELECT p.id, p.created_at
            FROM unnest(p_definitions) AS w(definition) CROSS JOIN unnest(p_statuses) AS s(status) CROSS JOIN LATERAL (
                SELECT e.id, e.created_at FROM forebay.workflow_execution e
                WHERE p_ids IS NULL AND e.depth < 1
                  AND e.workflow_definition_id = w.definition AND e.status = s.status COLLATE "C"
                  AND e.workspace_id = coalesce(p_workspace, e.workspace_id)
                  AND e.created_at >= coalesce(p_from, '-infinity')
                  AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit) p
            UNION ALL
            SELECT p.id, p.created_at
            FROM unnest(p_statuses) AS s(status) CROSS JOIN LATERAL (
                SELECT e.id, e.created_at FROM forebay.workflow_execution e
                WHERE p_ids IS NULL AND p_definitions IS NULL AND p_workspace IS NULL AND e.depth < 1
                  AND e.status = s.status COLLATE "C"
                  AND e.created_at >= coalesce(p_from, '-infinity')
                  AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)
                ORDER BY e.created_at DESC, e.id DESC LIMIT p_limit) p
            UNION ALL
            SELECT e.id, e.created_at
            FROM forebay.workflow_execution e
            WHERE e.id = ANY (p_ids)
              AND e.workspace_id = coalesce(p_workspace, e.workspace_id) AND e.status = ANY (p_statuses)
              AND e.created_at >= coalesce(p_from, '-infinity')
              AND (e.created_at, e.id) < (coalesce(p_before, 'infinity'), p_before_id)) f
        ORDER BY f.created_at DESC, f.id DESC LIMIT p_limit) p
    JOIN forebay.workflow_execution e ON e.id = p.id
    LEFT JOIN forebay.workflow_definition_version v ON v.id = e.version_id
    LEFT JOIN forebay.workflow_definition d ON d.id = e.workflow_definition_id
    ORDER BY p.created_at DESC, p.id DESC
$fn$;

-- What a living workspace may use, uses and has waiting. Every count stops at p_counted, and the oldest
-- is looked for among as many: the first in line of those that are ready, any of those behind a gate.
CREATE OR REPLACE FUNCTION forebay_r1.capacity(p_workspace uuid, p_counted bigint)
RETURNS TABLE (max_running int, paused boolean, running int, ready int, waits_for_key int, waits_for_definition int,
    delayed int, failed int, oldest_s float8)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
AS $fn$
    SELECT coalesce(w.limit_override, t.max_running) AS max_running, w.paused,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_slot() LIMIT p_counted) x) AS running,
           ready.count AS ready, keyed.count AS waits_for_key, gated.count AS waits_for_definition,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_delayed() LIMIT p_counted) x) AS delayed,
           (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue r
             WHERE r.workspace_id = w.id AND r.stage = forebay.stage_failed() LIMIT p_counted) x) AS failed,
           extract(epoch FROM clock_timestamp() - least(ready.oldest, keyed.oldest, gated.oldest))::float8 AS oldest_s
      FROM forebay.workspace w JOIN forebay.tier t ON t.name = w.tier
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(x.since) AS oldest FROM (
            SELECT greatest(r.created_at, r.available_at) AS since FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_ready()
             ORDER BY r.rank, r.id LIMIT p_counted) x) ready
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(x.since) AS oldest FROM (
            SELECT greatest(r.created_at, r.available_at) AS since FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_waits_for_key() LIMIT p_counted) x) keyed
      CROSS JOIN LATERAL (SELECT count(*)::int AS count, min(x.since) AS oldest FROM (
            SELECT greatest(r.created_at, r.available_at) AS since FROM forebay.execution_queue r
             WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_waits_for_definition() LIMIT p_counted) x) gated
     WHERE w.id = p_workspace AND w.deleted_at IS NULL
$fn$;
