-- Turns items that hold a slot, and whose execution row is missing, into dead letters. This frees their slots:
-- functions/complete.sql.
SELECT id, workspace_id FROM forebay_r1.fail_items_of_missing($1::uuid[], NULL, $2::text)
