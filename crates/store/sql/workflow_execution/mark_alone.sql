-- Records that a suspected run now runs alone in its process, so that the next death of its owner is attributed to this
-- run. This is stored before any node of the run is performed. A repeated call changes nothing.
UPDATE forebay.workflow_execution
SET alone = true
WHERE id = $1::uuid
  AND owner = $2::uuid
  AND owner_epoch = $3::bigint
  AND status = 'RUNNING'
RETURNING id
