-- Lets waiting items of keys and definitions with room reach the ready index: functions/open.sql.
SELECT fb_open_1($1::uuid[], $2::uuid[], $3::text[]) AS workspace
