-- Deletes the schedules of a definition that its published version no longer declares. $2 and $3: the declared ones.
DELETE FROM forebay.schedule
WHERE schedule.workflow_definition_id = $1::uuid AND schedule.by_definition
  AND NOT EXISTS (SELECT 1
                  FROM unnest($2::text[], $3::text[]) AS wanted(cron, timezone)
                  WHERE wanted.cron = schedule.cron AND wanted.timezone = schedule.timezone)
RETURNING schedule.id
