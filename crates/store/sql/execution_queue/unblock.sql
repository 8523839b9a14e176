-- Unblocks items of keys and definitions that have room: functions/shared/unblock.sql.
SELECT forebay.unblock($1::uuid[], $2::uuid[], $3::text[]) AS workspace
