-- Keys and definitions of a shard that block items, at most 5000 of each: definitions after ($2, $3), keys after ($4,
-- $5, $6). Skips from one to the next through the index, as sweep.sql does with workspaces, so no backlog is scanned.
-- MAX_LIMITS in src/queue/claim.rs is the same number: a scan that finds fewer has reached the end.
WITH RECURSIVE by_definition (workspace_id, definition_id) AS (
    (SELECT workspace_id, workflow_definition_id FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_waits_for_definition()
        AND (workspace_id, workflow_definition_id) > ($2::uuid, $3::uuid)
      ORDER BY workspace_id, workflow_definition_id LIMIT 1)
    UNION ALL
    SELECT next.* FROM by_definition CROSS JOIN LATERAL (
        SELECT item.workspace_id, item.workflow_definition_id FROM forebay.execution_queue item
         WHERE item.shard = $1::smallint AND item.stage = forebay.stage_waits_for_definition()
           AND (item.workspace_id, item.workflow_definition_id)
               > (by_definition.workspace_id, by_definition.definition_id)
         ORDER BY item.workspace_id, item.workflow_definition_id LIMIT 1) next),
by_key (workspace_id, definition_id, key) AS (
    (SELECT workspace_id, workflow_definition_id, concurrency_key FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_waits_for_key()
        AND (workspace_id, workflow_definition_id, concurrency_key) > ($4::uuid, $5::uuid, $6::text)
      ORDER BY workspace_id, workflow_definition_id, concurrency_key LIMIT 1)
    UNION ALL
    SELECT next.* FROM by_key CROSS JOIN LATERAL (
        SELECT item.workspace_id, item.workflow_definition_id, item.concurrency_key FROM forebay.execution_queue item
         WHERE item.shard = $1::smallint AND item.stage = forebay.stage_waits_for_key()
           AND (item.workspace_id, item.workflow_definition_id, item.concurrency_key)
               > (by_key.workspace_id, by_key.definition_id, by_key.key)
         ORDER BY item.workspace_id, item.workflow_definition_id, item.concurrency_key LIMIT 1) next)
(SELECT workspace_id, definition_id, NULL AS key FROM by_definition LIMIT 5000)
UNION ALL (SELECT workspace_id, definition_id, key FROM by_key LIMIT 5000)
