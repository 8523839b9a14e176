-- Delayed items whose time has come. statement_timestamp(), not clock_timestamp(): a volatile
-- function is never an index condition.
WITH p AS MATERIALIZED (
    SELECT id FROM forebay.execution_queue
     WHERE stage = forebay.stage_delayed() AND available_at <= statement_timestamp()
     ORDER BY available_at LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE forebay.execution_queue q
   SET stage = CASE WHEN q.concurrency_key IS NOT NULL THEN forebay.stage_waits_for_key() WHEN q.gated THEN forebay.stage_waits_for_definition() ELSE forebay.stage_ready() END
  FROM p WHERE q.id = p.id AND q.status = 'PENDING'
RETURNING q.workspace_id, q.stage, q.workflow_definition_id, q.concurrency_key
