-- Makes delayed items ready once they are due. A due item that has a concurrency key, or whose definition has a limit,
-- is not ready yet: it waits for free room under that limit, at its own rank. A ready item gets at least the rank from
-- which claims read, as in functions/shared/unblock.sql. The condition uses statement_timestamp(), because
-- clock_timestamp() is volatile and can never be an index condition.
WITH due_items AS MATERIALIZED (
    SELECT id FROM forebay.execution_queue
     WHERE stage = forebay.stage_delayed() AND available_at <= statement_timestamp()
     ORDER BY available_at LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE forebay.execution_queue item
   SET stage = CASE WHEN item.concurrency_key IS NOT NULL THEN forebay.stage_waits_for_key()
                    WHEN item.limited THEN forebay.stage_waits_for_definition()
                    ELSE forebay.stage_ready() END,
       rank = CASE WHEN item.concurrency_key IS NOT NULL OR item.limited
                   THEN least(item.rank, forebay_r1.own_rank(item.created_at, item.priority))
                   ELSE greatest(item.rank, (SELECT mark.ready_from[item.priority]
                                               FROM forebay.claim_mark mark
                                              WHERE mark.workspace_id = item.workspace_id)) END
  FROM due_items WHERE item.id = due_items.id AND item.status = 'PENDING'
RETURNING item.workspace_id, item.stage, item.workflow_definition_id, item.concurrency_key
