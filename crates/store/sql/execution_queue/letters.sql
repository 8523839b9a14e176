-- Dead letters, the newest first. $1 workspace and $2 definition narrow it, $3 goes on behind an item. The execution
-- has the reason in full.
SELECT q.id, q.workspace_id, q.workflow_definition_id, q.attempt_count, q.last_error, q.created_at, d.name AS definition_name,
       e.status AS execution_status, e.error, e.completed_at
  FROM (
    -- One of three, each by its own index; the others are never read.
    (SELECT * FROM forebay.execution_queue
      WHERE stage = forebay.stage_failed() AND $1::uuid IS NULL AND $2::uuid IS NULL AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      ORDER BY id DESC LIMIT $4::bigint)
    UNION ALL
    (SELECT * FROM forebay.execution_queue
      WHERE stage = forebay.stage_failed() AND workspace_id = $1::uuid AND $2::uuid IS NULL
        AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      ORDER BY id DESC LIMIT $4::bigint)
    UNION ALL
    (SELECT * FROM forebay.execution_queue
      WHERE stage = forebay.stage_failed() AND workflow_definition_id = $2::uuid AND workspace_id = coalesce($1::uuid, workspace_id)
        AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      ORDER BY id DESC LIMIT $4::bigint)) q
  LEFT JOIN forebay.workflow_execution e ON e.id = q.id
  LEFT JOIN forebay.workflow_definition d ON d.id = q.workflow_definition_id
 ORDER BY q.id DESC
