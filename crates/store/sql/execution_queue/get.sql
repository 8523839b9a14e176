-- One ticket with everything `explain` needs: its limits, what they hold now, its place (counted to
-- a thousand and no further), and a few of those who hold what it waits for.
SELECT q.id, q.workspace_id, q.workflow_definition_id, q.status, q.stage, q.priority, q.concurrency_key, q.created_at,
       q.available_at, q.claimed_at, q.dispatched_at, q.attempt_count, q.takeover_count, q.last_error,
       w.paused AS workspace_paused, w.deleted_at IS NOT NULL AS workspace_deleted,
       coalesce(w.limit_override, t.max_running) AS workspace_limit,
       (SELECT count(*)::int FROM forebay.execution_queue r
         WHERE r.shard = q.shard AND r.workspace_id = q.workspace_id AND r.stage = forebay.stage_slot()) AS workspace_running,
       d.status AS definition_status, d.concurrency AS definition_limit, d.key_concurrency AS key_limit,
       coalesce(d.deleted_at IS NOT NULL, true) AS definition_deleted,
       (SELECT count(*)::int FROM forebay.execution_queue r
         WHERE r.shard = q.shard AND r.workspace_id = q.workspace_id AND r.stage = forebay.stage_slot()
           AND r.workflow_definition_id = q.workflow_definition_id) AS definition_running,
       (SELECT count(*)::int FROM forebay.execution_queue r
         WHERE r.shard = q.shard AND r.workspace_id = q.workspace_id AND r.stage = forebay.stage_slot()
           AND r.workflow_definition_id = q.workflow_definition_id AND r.concurrency_key = q.concurrency_key) AS key_running,
       CASE WHEN q.stage = forebay.stage_ready() THEN (SELECT count(*)::int FROM (
            SELECT 1 FROM forebay.execution_queue r WHERE r.shard = q.shard AND r.workspace_id = q.workspace_id AND r.stage = forebay.stage_ready()
               AND (r.rank, r.id) < (q.rank, q.id) LIMIT 1001) x) END AS ahead,
       ARRAY(SELECT r.id FROM forebay.execution_queue r
              WHERE r.shard = q.shard AND r.workspace_id = q.workspace_id AND r.stage = forebay.stage_slot()
                AND CASE q.stage WHEN 0 THEN true WHEN 2 THEN r.workflow_definition_id = q.workflow_definition_id
                        AND r.concurrency_key = q.concurrency_key WHEN 3 THEN r.workflow_definition_id = q.workflow_definition_id
                        ELSE false END
              ORDER BY r.claimed_at, r.id LIMIT 5) AS held_by
  FROM forebay.execution_queue q
  LEFT JOIN forebay.workspace w ON w.id = q.workspace_id
  LEFT JOIN forebay.tier t ON t.name = w.tier
  LEFT JOIN forebay.workflow_definition d ON d.id = q.workflow_definition_id
 WHERE q.id = $1::uuid
