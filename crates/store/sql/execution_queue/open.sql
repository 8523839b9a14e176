-- Lets waiting items of keys and definitions with room reach the ready index: functions/shared/unblock.sql.
SELECT forebay.unblock($1::uuid[], $2::uuid[], $3::text[]) AS workspace
