-- Slots of some shards that no engine of this process ($2) is responsible for: the execution row is missing, or the
-- execution runs on another engine. By id after $3, at most 500.
SELECT item.id, item.workspace_id, execution.id IS NULL AS missing, execution.engine,
       coalesce(execution.terminating, false) AS terminating
FROM forebay.execution_queue item
-- LIMIT 1: always a primary-key probe, never a scan.
LEFT JOIN LATERAL (
    SELECT execution.id, execution.engine, execution.terminate_requested_at IS NOT NULL AS terminating
      FROM forebay.workflow_execution execution WHERE execution.id = item.id LIMIT 1) execution ON true
WHERE item.shard = ANY ($1::smallint[])
  AND item.stage = forebay.stage_slot()
  AND item.id > $3::uuid
  AND (execution.id IS NULL OR NOT execution.engine = ANY ($2::text[]))
ORDER BY item.id
LIMIT 500
