-- Deletes processes that ended more than a day ago and own nothing: no claimed item, and no run. Processes
-- with an external engine own no runs.
DELETE FROM forebay.process
WHERE process.ended_at < clock_timestamp() - interval '1 day'
  AND NOT EXISTS (SELECT 1
                  FROM forebay.execution_queue item
                  WHERE item.status = 'CLAIMED' AND item.claimed_by = process.id)
  AND NOT EXISTS (SELECT 1
                  FROM forebay.execution_queue item
                  WHERE item.stage = forebay.stage_slot() AND item.owner = process.id)
