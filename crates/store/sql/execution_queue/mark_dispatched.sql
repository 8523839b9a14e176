-- Claimed -> dispatched. Each item's `claim_id` is its fence: if another dispatcher took the item over, its row does
-- not change, and the caller reports it. If `begin` has already dispatched the item, its row does not change either.
UPDATE forebay.execution_queue item
SET status = 'DISPATCHED', dispatched_at = clock_timestamp()
FROM unnest($1::uuid[], $2::uuid[]) AS started(id, claim_id)
WHERE item.id = ANY ($1::uuid[])
  AND item.id = started.id
  AND item.claim_id = started.claim_id
  AND item.status = 'CLAIMED'
RETURNING item.id
