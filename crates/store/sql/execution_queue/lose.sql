-- Slot holders whose execution is missing become dead letters, and their slots are free: functions/complete.sql.
SELECT id, workspace_id FROM forebay.fb_missing_2($1::uuid[], NULL, $2::text)
