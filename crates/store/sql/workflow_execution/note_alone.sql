-- A suspect's turn to run alone has come: its owner's next death is its own. Stored before anything of it is
-- performed; a repeat changes nothing.
UPDATE forebay.workflow_execution
SET alone = true
WHERE id = $1::uuid
  AND owner = $2::uuid
  AND owner_epoch = $3::bigint
  AND status = 'RUNNING'
RETURNING id
