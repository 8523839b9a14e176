-- Of these gates ($2 workspaces, $3 definitions) those of anything deleted, and what waits there: to be failed with
-- the reason, a bounded number.
SELECT i.id, coalesce(w.deleted_at IS NOT NULL, true) AS workspace_gone, g.def
  FROM (SELECT DISTINCT u.ws, u.def FROM unnest($2::uuid[], $3::uuid[]) AS u(ws, def)) g
  -- LIMIT 1: always a primary-key probe, never a scan.
  LEFT JOIN LATERAL (SELECT x.id, x.deleted_at FROM forebay.workspace x WHERE x.id = g.ws LIMIT 1) w ON true
  LEFT JOIN LATERAL (SELECT y.id, y.deleted_at FROM forebay.workflow_definition y WHERE y.id = g.def LIMIT 1) d ON true
 CROSS JOIN LATERAL (
    SELECT q.id FROM forebay.execution_queue q
     WHERE q.shard = $1::smallint AND q.workspace_id = g.ws AND q.workflow_definition_id = g.def AND q.stage = forebay.stage_waits_for_definition()
    UNION ALL
    SELECT q.id FROM forebay.execution_queue q
     WHERE q.shard = $1::smallint AND q.workspace_id = g.ws AND q.workflow_definition_id = g.def AND q.stage = forebay.stage_waits_for_key()
    LIMIT 500) i
 WHERE w.id IS NULL OR w.deleted_at IS NOT NULL OR d.id IS NULL OR d.deleted_at IS NOT NULL
 LIMIT 500
