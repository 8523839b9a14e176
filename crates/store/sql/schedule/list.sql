-- Schedules of a workspace (null: all) or of a definition (null: any), or one of them, by id.
SELECT s.id, s.workspace_id, s.workflow_definition_id, d.name AS definition_name, s.by_definition, s.cron, s.timezone, s.run_at, s.input,
       s.priority, s.concurrency_key, s.overlap, s.catch_up, s.status, s.reason, s.next_at, s.buffered_at, s.revision, s.created_at,
       s.updated_at
FROM forebay.schedule s
JOIN forebay.workflow_definition d ON d.id = s.workflow_definition_id
WHERE s.id > $1::uuid
  AND ($2::uuid IS NULL OR s.workspace_id = $2)
  AND ($3::uuid IS NULL OR s.workflow_definition_id = $3)
  AND ($4::uuid IS NULL OR s.id = $4)
ORDER BY s.id
LIMIT $5::bigint
