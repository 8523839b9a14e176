-- Schedules by id, after $1. Optional filters: workspace $2, definition $3, schedule $4.
SELECT schedule.id, schedule.workspace_id, schedule.workflow_definition_id, definition.name AS definition_name,
       schedule.by_definition, schedule.cron, schedule.timezone, schedule.run_at, schedule.input, schedule.priority,
       schedule.concurrency_key, schedule.overlap, schedule.catch_up, schedule.status, schedule.reason,
       schedule.next_at, schedule.buffered_at, schedule.revision, schedule.created_at, schedule.updated_at
FROM forebay.schedule
JOIN forebay.workflow_definition definition ON definition.id = schedule.workflow_definition_id
WHERE schedule.id > $1::uuid
  AND ($2::uuid IS NULL OR schedule.workspace_id = $2)
  AND ($3::uuid IS NULL OR schedule.workflow_definition_id = $3)
  AND ($4::uuid IS NULL OR schedule.id = $4)
ORDER BY schedule.id
LIMIT $5::bigint
