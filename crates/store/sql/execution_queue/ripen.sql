-- Delayed items whose time has come. statement_timestamp(), not clock_timestamp(): a volatile
-- function is never an index condition.
WITH ripe AS MATERIALIZED (
    SELECT id FROM forebay.execution_queue
     WHERE stage = forebay.stage_delayed() AND available_at <= statement_timestamp()
     ORDER BY available_at LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE forebay.execution_queue item
   SET stage = CASE WHEN item.concurrency_key IS NOT NULL THEN forebay.stage_waits_for_key()
                    WHEN item.gated THEN forebay.stage_waits_for_definition()
                    ELSE forebay.stage_ready() END
  FROM ripe WHERE item.id = ripe.id AND item.status = 'PENDING'
RETURNING item.workspace_id, item.stage, item.workflow_definition_id, item.concurrency_key
