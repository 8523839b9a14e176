-- Workspaces of a shard that have something ready and a free slot. Hops through the ready index
-- from workspace to workspace, so a backlog of a million costs one probe.
WITH RECURSIVE hop (ws) AS (
    (SELECT workspace_id FROM forebay.execution_queue WHERE shard = $1::smallint AND stage = forebay.stage_ready() ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT q.workspace_id FROM forebay.execution_queue q
             WHERE q.shard = $1::smallint AND q.stage = forebay.stage_ready() AND q.workspace_id > hop.ws ORDER BY q.workspace_id LIMIT 1)
      FROM hop WHERE hop.ws IS NOT NULL)
SELECT w.id, w.weight::int
  FROM hop CROSS JOIN LATERAL (SELECT * FROM forebay.workspace x WHERE x.id = hop.ws AND NOT x.paused AND x.deleted_at IS NULL LIMIT 1) w
 CROSS JOIN LATERAL (SELECT * FROM forebay.tier y WHERE y.name = w.tier LIMIT 1) t
 CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM forebay.execution_queue r
                      WHERE r.shard = $1::smallint AND r.workspace_id = w.id AND r.stage = forebay.stage_slot()) u
 WHERE u.n < coalesce(w.limit_override, t.max_running)
