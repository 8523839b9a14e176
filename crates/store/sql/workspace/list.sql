-- Living workspaces after a name, by name, with what they use now.
SELECT w.id, w.name, w.tier, w.limit_override, w.paused, w.weight, w.max_backlog, w.created_at,
       coalesce(w.limit_override, t.max_running) AS max_running,
       (SELECT count(*)::int FROM forebay.execution_queue r
         WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_slot()) AS running,
       (SELECT count(*)::int FROM (SELECT 1 FROM forebay.execution_queue r
         WHERE r.shard = w.shard AND r.workspace_id = w.id AND r.stage = forebay.stage_ready() LIMIT 1001) x) AS ready
  FROM forebay.workspace w JOIN forebay.tier t ON t.name = w.tier
 WHERE w.deleted_at IS NULL AND w.name > $1::text
 ORDER BY w.name LIMIT $2::bigint
