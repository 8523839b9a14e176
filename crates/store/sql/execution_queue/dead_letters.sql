-- Dead letters, newest first, after item $3. Optional filters: workspace $1, definition $2. The execution's `error` has
-- the full reason.
SELECT dead_letter.id, dead_letter.workspace_id, dead_letter.workflow_definition_id, dead_letter.attempt_count,
       dead_letter.last_error, dead_letter.created_at, definition.name AS definition_name,
       execution.status AS execution_status, execution.error, execution.completed_at
  FROM (
    -- Only one of the three branches runs, each with its own index.
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
      ORDER BY id DESC LIMIT $4::bigint)) dead_letter
  LEFT JOIN forebay.workflow_execution execution ON execution.id = dead_letter.id
  LEFT JOIN forebay.workflow_definition definition ON definition.id = dead_letter.workflow_definition_id
 ORDER BY dead_letter.id DESC
