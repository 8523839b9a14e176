-- Stores how many deaths of its owners a run has survived, before the run is resumed. So the number is known at the
-- next death. Sets `alone` to false, because the run has to wait for its turn to run alone.
UPDATE forebay.workflow_execution
SET deaths = $4::int, deaths_seq = last_seq + tree_seq, alone = false
WHERE id = $1::uuid
  AND owner = $2::uuid
  AND owner_epoch = $3::bigint
  AND status = 'RUNNING'
RETURNING id
