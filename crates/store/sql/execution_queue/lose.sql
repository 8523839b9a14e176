-- Slot holders whose execution is missing become dead letters, and their slots are free: functions/complete.sql.
SELECT id, workspace_id FROM forebay_r1.fail_items_of_missing($1::uuid[], NULL, $2::text)
