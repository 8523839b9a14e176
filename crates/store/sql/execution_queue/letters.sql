-- Dead letters, the newest first. $1 workspace and $2 definition narrow it, $3 goes on behind an item. The execution
-- has the reason in full.
SELECT letter.id, letter.workspace_id, letter.workflow_definition_id, letter.attempt_count, letter.last_error,
       letter.created_at, definition.name AS definition_name, execution.status AS execution_status, execution.error,
       execution.completed_at
  FROM (
    -- One of three, each by its own index; the others are never read.
    (SELECT * FROM forebay.execution_queue
      WHERE stage = forebay.stage_failed() AND $1::uuid IS NULL AND $2::uuid IS NULL
        AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      ORDER BY id DESC LIMIT $4::bigint)
    UNION ALL
    (SELECT * FROM forebay.execution_queue
      WHERE stage = forebay.stage_failed() AND workspace_id = $1::uuid AND $2::uuid IS NULL
        AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      ORDER BY id DESC LIMIT $4::bigint)
    UNION ALL
    (SELECT * FROM forebay.execution_queue
      WHERE stage = forebay.stage_failed() AND workflow_definition_id = $2::uuid
        AND workspace_id = coalesce($1::uuid, workspace_id)
        AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      ORDER BY id DESC LIMIT $4::bigint)) letter
  LEFT JOIN forebay.workflow_execution execution ON execution.id = letter.id
  LEFT JOIN forebay.workflow_definition definition ON definition.id = letter.workflow_definition_id
 ORDER BY letter.id DESC
