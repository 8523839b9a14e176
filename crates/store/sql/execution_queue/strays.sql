-- Slots of some shards that no engine served here ($2) looks after, in order from $3 on: their execution is missing, or
-- runs on another engine. A bounded number.
SELECT q.id, q.workspace_id, e.id IS NULL AS missing, e.engine, coalesce(e.terminating, false) AS terminating
FROM forebay.execution_queue q
-- LIMIT 1: always a primary-key probe, never a scan.
LEFT JOIN LATERAL (
    SELECT e.id, e.engine, e.terminate_requested_at IS NOT NULL AS terminating
      FROM forebay.workflow_execution e WHERE e.id = q.id LIMIT 1) e ON true
WHERE q.shard = ANY ($1::smallint[])
  AND q.stage = forebay.stage_slot()
  AND q.id > $3::uuid
  AND (e.id IS NULL OR NOT e.engine = ANY ($2::text[]))
ORDER BY q.id
LIMIT 500
