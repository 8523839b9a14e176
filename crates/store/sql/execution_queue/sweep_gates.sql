-- Keys and definitions of a shard for which something waits; hops like the sweep.
WITH RECURSIVE by_key (ws, def, key) AS (
    (SELECT workspace_id, workflow_definition_id, concurrency_key FROM execution_queue
      WHERE shard = $1::smallint AND stage = 2 ORDER BY workspace_id, workflow_definition_id, concurrency_key LIMIT 1)
    UNION ALL
    SELECT n.* FROM by_key CROSS JOIN LATERAL (
        SELECT q.workspace_id, q.workflow_definition_id, q.concurrency_key FROM execution_queue q
         WHERE q.shard = $1::smallint AND q.stage = 2
           AND (q.workspace_id, q.workflow_definition_id, q.concurrency_key) > (by_key.ws, by_key.def, by_key.key)
         ORDER BY q.workspace_id, q.workflow_definition_id, q.concurrency_key LIMIT 1) n),
by_definition (ws, def) AS (
    (SELECT workspace_id, workflow_definition_id FROM execution_queue
      WHERE shard = $1::smallint AND stage = 3 ORDER BY workspace_id, workflow_definition_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM by_definition CROSS JOIN LATERAL (
        SELECT q.workspace_id, q.workflow_definition_id FROM execution_queue q
         WHERE q.shard = $1::smallint AND q.stage = 3
           AND (q.workspace_id, q.workflow_definition_id) > (by_definition.ws, by_definition.def)
         ORDER BY q.workspace_id, q.workflow_definition_id LIMIT 1) n)
SELECT ws, def, key FROM (SELECT ws, def, NULL AS key FROM by_definition LIMIT 5000) d
UNION ALL SELECT ws, def, key FROM (SELECT ws, def, key FROM by_key LIMIT 5000) k
