-- Publishes a version: new executions are pinned to it. A paused definition stays paused.
UPDATE forebay.workflow_definition definition
SET published_version = $3::uuid, status = CASE WHEN status = 'DRAFT' THEN 'ACTIVE' ELSE status END,
    concurrency = $4::int, key_concurrency = coalesce($5::int, 1), max_attempts = coalesce($6::int, 3),
    updated_at = clock_timestamp()
WHERE id = $1::uuid
  AND workspace_id = $2::uuid
  AND deleted_at IS NULL
  AND EXISTS (SELECT 1
              FROM forebay.workflow_definition_version version
              WHERE version.id = $3::uuid AND version.workflow_definition_id = definition.id)
RETURNING definition.status
