-- Keeps the count of deaths before the run is resumed, so that the next death finds it. It is not alone
-- before its turn comes.
UPDATE forebay.workflow_execution
SET deaths = $4::int, deaths_seq = last_seq + tree_seq, alone = false
WHERE id = $1::uuid
  AND owner = $2::uuid
  AND owner_epoch = $3::bigint
  AND status = 'RUNNING'
RETURNING id
