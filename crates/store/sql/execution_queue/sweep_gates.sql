-- Keys and definitions of a shard for which something waits, a bounded number from a place on; hops
-- like the sweep. $2, $3: definitions after this one; $4 to $6: keys after this one.
WITH RECURSIVE by_definition (ws, def) AS (
    (SELECT workspace_id, workflow_definition_id FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_waits_for_definition() AND (workspace_id, workflow_definition_id) > ($2::uuid, $3::uuid)
      ORDER BY workspace_id, workflow_definition_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM by_definition CROSS JOIN LATERAL (
        SELECT q.workspace_id, q.workflow_definition_id FROM forebay.execution_queue q
         WHERE q.shard = $1::smallint AND q.stage = forebay.stage_waits_for_definition()
           AND (q.workspace_id, q.workflow_definition_id) > (by_definition.ws, by_definition.def)
         ORDER BY q.workspace_id, q.workflow_definition_id LIMIT 1) n),
by_key (ws, def, key) AS (
    (SELECT workspace_id, workflow_definition_id, concurrency_key FROM forebay.execution_queue
      WHERE shard = $1::smallint AND stage = forebay.stage_waits_for_key()
        AND (workspace_id, workflow_definition_id, concurrency_key) > ($4::uuid, $5::uuid, $6::text)
      ORDER BY workspace_id, workflow_definition_id, concurrency_key LIMIT 1)
    UNION ALL
    SELECT n.* FROM by_key CROSS JOIN LATERAL (
        SELECT q.workspace_id, q.workflow_definition_id, q.concurrency_key FROM forebay.execution_queue q
         WHERE q.shard = $1::smallint AND q.stage = forebay.stage_waits_for_key()
           AND (q.workspace_id, q.workflow_definition_id, q.concurrency_key) > (by_key.ws, by_key.def, by_key.key)
         ORDER BY q.workspace_id, q.workflow_definition_id, q.concurrency_key LIMIT 1) n)
(SELECT ws, def, NULL AS key FROM by_definition LIMIT 5000)
UNION ALL (SELECT ws, def, key FROM by_key LIMIT 5000)
