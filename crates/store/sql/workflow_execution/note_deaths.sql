-- Keeps the count of deaths before the run is resumed, so that the next death finds it.
UPDATE workflow_execution
SET deaths = $4::int, deaths_seq = last_seq, alone = $5::boolean
WHERE id = $1::uuid
  AND owner = $2::uuid
  AND owner_epoch = $3::bigint
  AND status = 'RUNNING'
RETURNING id
