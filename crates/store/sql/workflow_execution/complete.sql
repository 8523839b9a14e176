-- Moves executions to a terminal status. Every caller uses this: functions/complete.sql.
SELECT execution, applied, had_queue_item, workspace, freed
FROM forebay_r1.complete($1::uuid[], $2::text[], $3::jsonb[], $4::jsonb[], $5::uuid[], $6::text, $7::text)
