-- Claimed -> dispatched. claim_id is the fence: a dispatcher whose claim was taken over changes no
-- row, and the caller reports it. `begin` may have done it already: that is no row either.
UPDATE forebay.execution_queue
SET status = 'DISPATCHED', dispatched_at = clock_timestamp()
WHERE id = ANY ($1::uuid[])
  AND status = 'CLAIMED'
  AND claim_id = $2::uuid
RETURNING id
