-- One queue item with everything that `explain` needs: its limits, how many items use each of them now, and its
-- position, counted up to a thousand. `held_by` names up to five executions that hold the slots it waits for.
SELECT item.id, item.workspace_id, item.workflow_definition_id, item.status, item.stage, item.priority,
       item.concurrency_key, item.created_at, item.available_at, item.claimed_at, item.dispatched_at,
       item.attempt_count, item.takeover_count, item.last_error, workspace.paused AS workspace_paused,
       workspace.deleted_at IS NOT NULL AS workspace_deleted,
       coalesce(workspace.limit_override, tier.max_running) AS workspace_limit,
       (SELECT count(*)::int FROM forebay.execution_queue holder
         WHERE holder.shard = item.shard AND holder.workspace_id = item.workspace_id
           AND holder.claim_number IS NOT NULL) AS workspace_running,
       definition.status AS definition_status, definition.concurrency AS definition_limit,
       definition.key_concurrency AS key_limit, coalesce(definition.deleted_at IS NOT NULL, true) AS definition_deleted,
       (SELECT count(*)::int FROM forebay.execution_queue holder
         WHERE holder.shard = item.shard AND holder.workspace_id = item.workspace_id
           AND holder.claim_number IS NOT NULL
           AND holder.workflow_definition_id = item.workflow_definition_id) AS definition_running,
       (SELECT count(*)::int FROM forebay.execution_queue holder
         WHERE holder.shard = item.shard AND holder.workspace_id = item.workspace_id
           AND holder.claim_number IS NOT NULL
           AND holder.workflow_definition_id = item.workflow_definition_id
           AND holder.concurrency_key = item.concurrency_key) AS key_running,
       CASE WHEN item.stage = forebay.stage_ready() THEN (SELECT count(*)::int FROM (
            SELECT 1
              FROM generate_series(1, 5) AS level(priority) CROSS JOIN LATERAL (
                SELECT 1
                  FROM forebay.execution_queue before
                 WHERE before.shard = item.shard AND before.workspace_id = item.workspace_id
                   AND before.stage = forebay.stage_ready() AND before.priority = level.priority
                   AND (before.rank, before.id) < (item.rank, item.id) LIMIT 1001) of_priority
             LIMIT 1001) counted) END AS ahead,
       ARRAY(SELECT holder.id FROM forebay.execution_queue holder
              WHERE holder.shard = item.shard AND holder.workspace_id = item.workspace_id
                AND holder.claim_number IS NOT NULL
                AND CASE item.stage
                        WHEN forebay.stage_ready() THEN true
                        WHEN forebay.stage_waits_for_key()
                        THEN holder.workflow_definition_id = item.workflow_definition_id
                             AND holder.concurrency_key = item.concurrency_key
                        WHEN forebay.stage_waits_for_definition()
                        THEN holder.workflow_definition_id = item.workflow_definition_id
                        ELSE false END
              ORDER BY holder.claimed_at, holder.id LIMIT 5) AS held_by
  FROM forebay.execution_queue item
  LEFT JOIN forebay.workspace ON workspace.id = item.workspace_id
  LEFT JOIN forebay.tier ON tier.name = workspace.tier
  LEFT JOIN forebay.workflow_definition definition ON definition.id = item.workflow_definition_id
 WHERE item.id = $1::uuid
