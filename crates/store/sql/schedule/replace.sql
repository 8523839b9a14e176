-- Schedules of a definition that its published version no longer has go.
DELETE FROM forebay.schedule s
WHERE s.workflow_definition_id = $1::uuid AND s.by_definition
  AND NOT EXISTS (SELECT 1 FROM unnest($2::text[], $3::text[]) AS w(cron, timezone) WHERE w.cron = s.cron AND w.timezone = s.timezone)
RETURNING s.id
